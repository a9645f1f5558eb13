"""Models in several GGUF files become one file, or are refused."""

from __future__ import annotations

import os
from contextlib import ExitStack, closing
from pathlib import Path

import gguf
import numpy as np
import pytest

from puna.backends.base import ModelSource
from puna.backends.cpu import CpuBackend
from puna.convert.errors import ConversionError
from puna.convert.in_place import make_header
from puna.convert.requantize import requantize
from puna.gguf import GgufFile
from tests.convert.converting import convert, files_in
from tests.forward import all_logits, load_file
from tests.tiny import TINY, write_tiny

pytestmark = pytest.mark.native


def split(path: Path, directory: Path, num_parts: int = 3) -> Path:
    """As llama.cpp's gguf-split does."""
    reader = gguf.GGUFReader(path)
    directory.mkdir()
    for number in range(num_parts):
        part = directory / f"tiny-{number + 1:05}-of-{num_parts:05}.gguf"
        writer = gguf.GGUFWriter(part, "llama")
        for field in reader.fields.values() if number == 0 else ():
            if not field.name.startswith(("GGUF.", "general.architecture")):
                kind, item = field.types[0], field.types[-1]
                writer.add_key_value(field.name, field.contents(), kind, item if kind != item else None)
        writer.add_uint16("split.no", number)
        writer.add_uint16("split.count", num_parts)
        writer.add_int32("split.tensors.count", len(reader.tensors))
        for tensor in reader.tensors[number::num_parts]:
            writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    return directory


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    return write_tiny(tmp_path / "whole.gguf", TINY["llama"], "Q8_0")


@pytest.mark.parametrize(("quantization", "ending"), [("Q8_0", ".gguf"), ("Q4_0", ".GGUF")])
def test_parts_are_used_where_they_are(quantization: str, ending: str, tmp_path: Path):
    whole, header = write_tiny(tmp_path / "whole.gguf", TINY["llama"], quantization), tmp_path / "header.gguf"
    found = files_in(split(whole, tmp_path / "parts"))
    parts = {name.replace(".gguf", ending): path for name, path in sorted(found.items())}
    convert(make_header, parts, header)
    with ExitStack() as stack:
        backend = stack.enter_context(closing(CpuBackend()))
        descriptors = []
        for path in (header, *parts.values()):
            descriptors.append(os.open(path, os.O_RDONLY))
            stack.callback(os.close, descriptors[-1])
        model = backend.load(ModelSource("model", tuple(descriptors)))
        tokens = [5, 9, 2, 77]
        expected = all_logits(load_file(backend, whole), tokens)
        np.testing.assert_array_equal(all_logits(model, tokens), expected)
    with GgufFile(whole) as file:
        data = sum(tensor.num_bytes for tensor in file.tensors.values())
    assert whole.stat().st_size - header.stat().st_size > 0.9 * data


def test_parts_are_merged(whole: Path, tmp_path: Path):
    told = convert(requantize, files_in(split(whole, tmp_path / "parts")), tmp_path / "merged.gguf")
    assert told[-1].completed == told[-1].total == (tmp_path / "merged.gguf").stat().st_size
    with GgufFile(whole) as expected, GgufFile(tmp_path / "merged.gguf") as merged:
        assert merged.tensors.keys() == expected.tensors.keys()
        for name, tensor in expected.tensors.items():
            assert (merged.tensors[name].type, merged.tensors[name].shape) == (tensor.type, tensor.shape)
            np.testing.assert_array_equal(merged.data(name), expected.data(name))
        assert merged.metadata.keys() == expected.metadata.keys()
        for key in expected.metadata:
            assert merged.metadata.info(key) == expected.metadata.info(key)
            np.testing.assert_array_equal(merged.metadata[key], expected.metadata[key])


def test_parts_that_are_not_all_there_are_refused(whole: Path, tmp_path: Path):
    files = files_in(split(whole, tmp_path / "parts"))
    first, second, third = sorted(files)
    with pytest.raises(ConversionError, match="2 files of a GGUF model in 3 parts"):
        convert(requantize, {name: files[name] for name in (first, third)}, tmp_path / "merged.gguf")
    twice = {first: files[first], second: files[second], "again": files[second]}
    with pytest.raises(ConversionError, match="comes twice"):
        convert(requantize, twice, tmp_path / "merged.gguf")
    with pytest.raises(ConversionError, match="2 files"):
        convert(requantize, {"a": whole, "b": whole}, tmp_path / "merged.gguf")
