"""Weights that stay in safetensors files are computed with just as if they had been converted."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import numpy as np
import pytest

from puna._native import NativeError, ProgramBuilder, catch_bus_errors
from puna.backends.base import ModelLoadError, ModelSource
from puna.backends.cpu import CpuBackend
from puna.convert.in_place import SUFFIX, make_header
from puna.convert.safetensors import convert_safetensors
from puna.gguf import GgufError, GgufFile
from puna.gguf.writer import NewTensor, array, string, write_header
from tests.convert.converting import convert, files_in
from tests.convert.directories import DIRECTORIES, random_weights, write_directory
from tests.convert.models.recorded import RECORDED
from tests.convert.models.shapes import write
from tests.forward import all_logits, load_file

pytestmark = pytest.mark.native

TOKENS = [5, 9, 2, 77, 266, 31]


@contextmanager
def opened(header: Path, directory: Path) -> Iterator[ModelSource]:
    with ExitStack() as stack:
        descriptors = []
        for path in (header, *sorted(directory.glob(f"*{SUFFIX}"))):
            descriptors.append(os.open(path, os.O_RDONLY))
            stack.callback(os.close, descriptors[-1])
        yield ModelSource("model", tuple(descriptors))


def make(directory: Path, header: Path) -> None:
    convert(make_header, dict(sorted(files_in(directory).items())), header)


@pytest.mark.parametrize("dtype", ["BF16", "F16", "F32"])
@pytest.mark.parametrize("name", ["llama", "qwen2", "qwen3moe", "gemma3"])
def test_logits_are_those_of_the_converted_file(name: str, dtype: str, tmp_path: Path):
    tiny = DIRECTORIES[name]
    directory = write_directory(tmp_path / "in", tiny, random_weights(tiny), num_parts=3, dtype=dtype)
    header, whole = tmp_path / "header.gguf", tmp_path / "whole.gguf"
    make(directory, header)
    convert(convert_safetensors, files_in(directory), whole)
    with closing(CpuBackend()) as backend:
        expected = all_logits(load_file(backend, whole), TOKENS)
        with opened(header, directory) as source:
            model = backend.load(source)
        np.testing.assert_array_equal(all_logits(model, TOKENS), expected)


def test_what_is_the_same_is_not_copied(tmp_path: Path):
    tiny = DIRECTORIES["qwen2"]
    directory = write_directory(tmp_path / "in", tiny, random_weights(tiny))
    make(directory, tmp_path / "header.gguf")
    vectors = sum(values.nbytes for values in random_weights(tiny).values() if values.ndim == 1)
    with gguf_file(tmp_path / "header.gguf", directory) as file:
        data = min(t.offset for t in file.tensors.values() if len(t.shape) == 1)
        assert (tmp_path / "header.gguf").stat().st_size - data <= vectors + 32 * len(file.tensors)


@pytest.mark.parametrize("name", ["granitemoe", "qwen35moe", "lfm2moe"])
def test_experts_lie_where_they_are(name: str, tmp_path: Path):
    """Each in a tensor of its own, or all in one with gates and what they gate."""
    directory = write(tmp_path / "in", RECORDED[name])
    make(directory, tmp_path / "header.gguf")
    convert(convert_safetensors, files_in(directory), tmp_path / "whole.gguf")
    with GgufFile(tmp_path / "whole.gguf") as whole, gguf_file(tmp_path / "header.gguf", directory) as file:
        experts = sum(tensor.num_bytes for tensor in whole.tensors.values() if "_exps" in tensor.name)
        saved = (tmp_path / "whole.gguf").stat().st_size - (tmp_path / "header.gguf").stat().st_size
        assert saved > experts
        for tensor in whole.tensors:
            np.testing.assert_array_equal(file.data(tensor), whole.data(tensor))
            np.testing.assert_array_equal(file.dequantize(tensor), whole.dequantize(tensor))
    with closing(CpuBackend()) as backend, opened(tmp_path / "header.gguf", directory) as source:
        expected = all_logits(load_file(backend, tmp_path / "whole.gguf"), TOKENS)
        np.testing.assert_array_equal(all_logits(backend.load(source), TOKENS), expected)


@contextmanager
def gguf_file(header: Path, directory: Path) -> Iterator[GgufFile]:
    with opened(header, directory) as source:
        first, *others = source.descriptors
        with GgufFile.from_descriptor(first, "header", others) as file:
            yield file


def test_tensors_at_odd_offsets_are_copied(tmp_path: Path):
    tiny = DIRECTORIES["qwen2"]
    directory = write_directory(tmp_path / "in", tiny, random_weights(tiny))
    path = directory / "model.safetensors"
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    odd = content[8 : 8 + length] + b" "
    path.write_bytes(len(odd).to_bytes(8, "little") + odd + content[8 + length :])
    make(directory, tmp_path / "header.gguf")
    convert(convert_safetensors, files_in(directory), tmp_path / "whole.gguf")
    with GgufFile(tmp_path / "whole.gguf") as whole, gguf_file(tmp_path / "header.gguf", directory) as file:
        for name in whole.tensors:
            np.testing.assert_array_equal(file.data(name), whole.data(name))
        assert (tmp_path / "header.gguf").stat().st_size > path.stat().st_size


def test_files_that_do_not_belong_together_are_refused(tmp_path: Path):
    tiny = DIRECTORIES["qwen2"]
    directory = write_directory(tmp_path / "in", tiny, random_weights(tiny))
    header = tmp_path / "header.gguf"
    make(directory, header)
    with pytest.raises(GgufError, match="a file that is not there"):
        GgufFile(header)
    short = tmp_path / "short"
    short.mkdir()
    (short / "model.safetensors").write_bytes((directory / "model.safetensors").read_bytes()[:-2])
    with (
        closing(CpuBackend()) as backend,
        opened(header, short) as source,
        pytest.raises(ModelLoadError, match="beyond the end of their file"),
    ):
        backend.load(source)


def test_a_file_that_is_cut_short_while_it_is_used(tmp_path: Path):
    catch_bus_errors()
    tiny = DIRECTORIES["qwen2"]
    directory = write_directory(tmp_path / "in", tiny, random_weights(tiny))
    make(directory, tmp_path / "header.gguf")
    with closing(CpuBackend()) as backend, opened(tmp_path / "header.gguf", directory) as source:
        model = backend.load(source)
        all_logits(model, TOKENS)
        os.truncate(directory / "model.safetensors", 4096)
        with pytest.raises(NativeError, match="cut short while it was in use"):
            all_logits(model, TOKENS)


HOSTILE = {
    "too few": ([1, 1], [1], [64], "is not an array of 2 values"),
    "odd": ([1, 1], [1, 0], [65, 0], "cannot lie at 65"),
    "huge": ([1, 1], [1, 0], [2**64 - 4, 0], "cannot lie at"),
    "another file": ([1, 1], [7, 0], [64, 0], "a file that is not there"),
    "none": ([0, 1], [0], [0], "cannot lie in 0 places"),
    "two for a vector": ([2, 1], [1, 1, 0], [64, 72, 0], "cannot lie in 2 places"),
    "half here": ([1, 2], [0, 1, 0], [0, 64, 80], "cannot lie at 80"),
    "overlapping": ([1, 2], [0, 1, 1], [0, 64, 72], "overlaps that of"),
    "very many": ([1, 2**32 - 1], [0, 1], [0, 64], "is not an array of 4294967296 values"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_places(case: str, tmp_path: Path):
    places, files, offsets, message = HOSTILE[case]
    metadata = {
        "general.architecture": string("llama"),
        "puna.tensors.places": array("uint32", places),
        "puna.tensors.file": array("uint32", files),
        "puna.tensors.offset": array("uint64", offsets),
    }
    tensors = [NewTensor("a", "F32", (4,)), NewTensor("b", "F32", (2, 2, 2))]
    with (tmp_path / "header.gguf").open("w+b") as file:
        write_header(file, metadata, tensors)
    with pytest.raises(GgufError, match=message):
        GgufFile(tmp_path / "header.gguf")


def test_rows_that_lie_apart_are_no_matrix(tmp_path: Path):
    """Stacks of matrices of one row have the shape of a matrix, but only one row where their data begin."""
    metadata = {
        "puna.tensors.places": array("uint32", [3]),
        "puna.tensors.file": array("uint32", [1, 1, 1]),
        "puna.tensors.offset": array("uint64", [8, 0, 16]),
    }
    header, directory = tmp_path / "header.gguf", tmp_path / "in"
    with header.open("w+b") as file:
        write_header(file, metadata, [NewTensor("rows", "F32", (2, 1, 3))])
    directory.mkdir()
    (directory / f"a{SUFFIX}").write_bytes(bytes(24))
    with gguf_file(header, directory) as file:
        builder = ProgramBuilder(file.native, "auto", "f16")
        with pytest.raises(NativeError, match="its rows do not lie together"):
            builder.op("Embed", [], [builder.buffer(2)], ["rows"])
