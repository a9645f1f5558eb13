"""A file with tensors that nothing reads is another variant of its architecture, which would run wrong."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from puna.gguf import GgufFile
from puna.graph import GraphError
from puna.models import trace_model
from tests.tiny import TINY, write_tiny

pytestmark = pytest.mark.unit


@dataclass(frozen=True)
class Shape:
    shape: tuple[int, ...]


@pytest.mark.parametrize("name", sorted(TINY))
def test_known_files_have_no_unused_tensors(name: str, tmp_path: Path) -> None:
    with GgufFile(write_tiny(tmp_path / "tiny.gguf", TINY[name])) as file:
        trace_model(file.metadata, file.tensors, file.dequantize)


@pytest.mark.parametrize(
    ("name", "tensor", "text"),
    [
        ("llama", "blk.0.ffn_up.scale", "not part of architecture 'llama'"),
        ("gemma3", "rope_freqs.weight", "not part of architecture 'gemma3'"),
        ("gemma3", "v.blk.0.attn_k.weight", "models that read images are not supported"),
    ],
)
def test_an_unused_tensor_is_named(name: str, tensor: str, text: str, tmp_path: Path) -> None:
    path = write_tiny(tmp_path / "tiny.gguf", TINY[name])
    refused = pytest.raises(GraphError, match=f"tensor {re.escape(tensor)}: {text}")
    with GgufFile(path) as file, refused:
        trace_model(file.metadata, {**file.tensors, tensor: Shape((1,))}, file.dequantize)
