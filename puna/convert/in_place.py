"""A header for a directory of safetensors, or for the parts of a GGUF file: weights stay where they are.

It is a GGUF file with all metadata and an index of all tensors. Where another file has a tensor's data just
as GGUF has them, they are not in it: it says where they lie (puna.tensors.*).
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence

from puna._native import ThreadPool
from puna.convert.errors import ConversionError
from puna.convert.job import ConvertProgress, Report
from puna.convert.output import write_model
from puna.convert.planned_tensor import PlannedTensor
from puna.convert.safetensors import plan_safetensors
from puna.convert.sources.files import Files
from puna.convert.sources.gguf_parts import read_parts
from puna.convert.sources.header import DTYPE_BYTES
from puna.convert.sources.values import Rows
from puna.gguf import GgufError
from puna.gguf.writer import GgufValue, NewTensor, array, write_header

SUFFIX, GGUF = ".safetensors", ".gguf"
_PLACES, _FILES, _OFFSETS = "puna.tensors.places", "puna.tensors.file", "puna.tensors.offset"
"""Of each tensor, in the order of the index, in how many places it lies (1, or a place for each of its
matrices); of each place, 0: in this file; n: in the n-th other file, from there on.
"""
_HERE = (0, 0)


def make_header(
    files: Mapping[str, int], output: int, quantize: str, report: Report, pool: ThreadPool
) -> None:
    """files: of the directory, by name, of which those that end with SUFFIX count from 1 on, in their order;
    or all parts, which all count. quantize: must be empty. Raises ConversionError, OSError.
    """
    if quantize:
        raise ConversionError("what is quantized cannot stay where it is")
    given = Files(files)
    if all(name.lower().endswith(GGUF) for name in files):
        _join_parts(given, output, report)
        return
    model = plan_safetensors(given, "")
    shards = {name: number for number, name in enumerate((n for n in files if n.endswith(SUFFIX)), 1)}
    found = {tensor.name: _places(tensor, model.types[tensor.name], shards) for tensor in model.tensors}
    outside = {name for name, places in found.items() if places != [_HERE]}
    metadata = model.metadata | _index(found.values())
    write_model(given, output, metadata, model.tensors, model.types, report, pool, outside)


def _join_parts(files: Files, output: int, report: Report) -> None:
    parts = read_parts(files, as_stored=True)
    numbers = {name: number for number, name in enumerate(files.descriptors, 1)}
    places = [[(numbers[part.file], part.info.offset)] for part in parts.tensors.values()]
    tensors = [NewTensor(name, part.info.type, part.info.shape) for name, part in parts.tensors.items()]
    try:
        metadata = parts.values() | _index(places)
    except GgufError as error:
        raise ConversionError(str(error)) from error
    with open(output, "r+b", closefd=False) as file:
        layout = write_header(file, metadata, tensors, parts.tensors)
    report(ConvertProgress("reading parts", layout.num_bytes, layout.num_bytes))


def _index(places: Collection[Sequence[tuple[int, int]]]) -> dict[str, GgufValue]:
    """Metadata; of each tensor."""
    every = [place for each in places for place in each]
    return {
        _PLACES: array("uint32", [len(each) for each in places]),
        _FILES: array("uint32", [file for file, _ in every]),
        _OFFSETS: array("uint64", [offset for _, offset in every]),
    }


def _places(tensor: PlannedTensor, type_name: str, shards: Mapping[str, int]) -> list[tuple[int, int]]:
    """The files that have the tensor, or each of its matrices, just as GGUF would, and from which byte on;
    [_HERE]: none has.
    """
    if not tensor.is_lossless or tensor.pair_rows or tensor.dtype != type_name:
        return [_HERE]
    runs = _runs(tensor.rows)
    if len(runs) != 1:
        if len(tensor.shape) != 3 or any(rows.count != tensor.shape[1] for rows in tensor.rows):
            return [_HERE]
        runs = list(tensor.rows)
    places = [(shards.get(rows.tensor.file, 0), _begin(rows)) for rows in runs]
    fits = all(file and begin % DTYPE_BYTES[tensor.dtype] == 0 for file, begin in places)
    return places if fits else [_HERE]


def _begin(rows: Rows) -> int:
    """Where they begin in their file."""
    return rows.tensor.offset + rows.begin * rows.tensor.row_bytes


def _runs(parts: tuple[Rows, ...]) -> list[Rows]:
    """The first of all those that lie behind each other."""
    runs = [parts[0]]
    for before, rows in itertools.pairwise(parts):
        end = _begin(before) + before.count * before.tensor.row_bytes
        if rows.tensor.file != before.tensor.file or _begin(rows) != end:
            runs.append(rows)
    return runs
