"""A file with tensors that nothing reads is another variant of its architecture, which would run wrong."""

from __future__ import annotations

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


def test_an_unused_tensor_is_named(tmp_path: Path) -> None:
    with GgufFile(write_tiny(tmp_path / "tiny.gguf", TINY["llama"])) as file:
        tensors = {**file.tensors, "blk.0.ffn_up.scale": Shape((1,))}
        with pytest.raises(
            GraphError, match=r"tensor blk\.0\.ffn_up\.scale: not part of architecture 'llama'"
        ):
            trace_model(file.metadata, tensors, file.dequantize)
