"""Converted models are, tensor by tensor and key by key, what llama.cpp's converter makes of them."""

from __future__ import annotations

import json
import zlib
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from puna.backends.cpu import CpuBackend
from puna.convert.safetensors import convert_safetensors
from puna.gguf import GgufFile
from tests.convert.converting import convert, files_in
from tests.convert.models.recorded import RECORDED
from tests.convert.models.shapes import write
from tests.forward import all_logits, load_file

pytestmark = pytest.mark.native

EXPECTED = json.loads((Path(__file__).parent / "recorded.json").read_text())


@pytest.mark.parametrize("name", RECORDED)
def test_as_recorded(name: str, tmp_path: Path):
    directory, output = write(tmp_path / "in", RECORDED[name]), tmp_path / "out.gguf"
    convert(convert_safetensors, files_in(directory), output)
    expected = EXPECTED[name]
    with GgufFile(output) as file:
        made = {
            tensor: f"{info.type} {[*info.shape]} {zlib.crc32(file.data(tensor)):08x}"
            for tensor, info in file.tensors.items()
        }
        assert made == expected["tensors"]
        said = {key: file.metadata.get(key) for key in expected["metadata"]}
        assert {k: [*v] if isinstance(v, np.ndarray) else v for k, v in said.items()} == expected["metadata"]
    if not RECORDED[name].word_pieces:
        with closing(CpuBackend()) as backend:
            assert np.isfinite(all_logits(load_file(backend, output), [1, 2, 3])).all()
