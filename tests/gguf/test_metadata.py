"""Metadata can be read piece by piece, from a descriptor, without the file being mapped."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from puna.gguf import GgufError, GgufFile, Metadata, ValueInfo, open_file, read_metadata
from tests.gguf.encode import ARRAY, FLOAT32, STRING, UINT32, Tensor, array, gguf_bytes, key, string, u32

pytestmark = pytest.mark.native

WORDS = ["", *(f"word {i}" for i in range(10_000)), "x" * 3_000_000, "end"]
NUMBERS = np.arange(10_000, dtype="<f4")


def read(path: Path) -> Metadata:
    words = b"".join(string(word) for word in WORDS)
    keys = [
        key("words", ARRAY, array(STRING, len(WORDS), words)),
        key("numbers", ARRAY, array(FLOAT32, len(NUMBERS), NUMBERS.tobytes())),
        key("nested", ARRAY, array(ARRAY, 1, array(STRING, 1, string("x")))),
        key("empty", ARRAY, array(STRING, 0, b"")),
        key("number", UINT32, u32(7)),
    ]
    path.write_bytes(gguf_bytes(keys, [Tensor("a", (2,))], bytes(8)))
    with open_file(path) as descriptor:
        return read_metadata(descriptor, "some file")


def test_values_are_known_before_they_are_read(tmp_path: Path) -> None:
    metadata = read(tmp_path / "a.gguf")
    assert [metadata.info(key) for key in metadata] == [
        ValueInfo("words", "array", "string", len(WORDS)),
        ValueInfo("numbers", "array", "float32", len(NUMBERS)),
        ValueInfo("nested", "array", "array", 1),
        ValueInfo("empty", "array", "string", 0),
        ValueInfo("number", "uint32", "", 0),
    ]
    assert metadata.tensors["a"].shape == (2,)
    assert metadata.version == 3


def test_chunks_are_short_and_together_the_whole(tmp_path: Path) -> None:
    metadata = read(tmp_path / "a.gguf")
    words = list(metadata.chunks("words"))
    assert [word for chunk in words for word in chunk] == metadata["words"] == WORDS
    assert all(sum(map(len, chunk[:-1])) < 1 << 20 for chunk in words)
    numbers = list(metadata.chunks("numbers"))
    assert len(numbers) > 1
    assert np.concatenate(numbers).tolist() == NUMBERS.tolist()
    assert list(metadata.chunks("nested")) == [[["x"]]]
    assert list(metadata.chunks("empty")) == []


def test_only_arrays_have_chunks(tmp_path: Path) -> None:
    metadata = read(tmp_path / "a.gguf")
    with pytest.raises(GgufError, match="some file: metadata 'number': is not an array"):
        list(metadata.chunks("number"))
    with pytest.raises(KeyError, match="none"):
        list(metadata.chunks("none"))


def test_a_descriptor_stays_its_owners(tmp_path: Path) -> None:
    path = tmp_path / "a.gguf"
    read(path)
    descriptor = os.open(path, os.O_RDONLY)
    metadata = read_metadata(descriptor, "a")
    file = GgufFile.from_descriptor(descriptor, "b")
    assert os.lseek(descriptor, 0, os.SEEK_CUR) == 0
    os.close(descriptor)
    path.unlink()
    assert metadata["number"] == 7
    assert file.dequantize("a").tolist() == [0, 0]
    with pytest.raises(GgufError, match="some name: cannot use the descriptor"):
        read_metadata(descriptor, "some name")
