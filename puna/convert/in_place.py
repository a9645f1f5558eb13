"""A header for a directory of safetensors whose weights stay where they are.

It is a GGUF file with all metadata and an index of all tensors. Where safetensors have a tensor's data just
as GGUF has them, they are not in it: it says where they lie (puna.tensors.*).
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from puna._native import ThreadPool
from puna.convert.errors import ConversionError
from puna.convert.job import Report
from puna.convert.output import write_model
from puna.convert.planned_tensor import PlannedTensor
from puna.convert.safetensors import plan_safetensors
from puna.convert.sources.files import Files
from puna.convert.sources.header import DTYPE_BYTES
from puna.convert.sources.values import Rows
from puna.gguf.writer import array

SUFFIX = ".safetensors"
_PLACES, _FILES, _OFFSETS = "puna.tensors.places", "puna.tensors.file", "puna.tensors.offset"
"""Of each tensor, in the order of the index, in how many places it lies (1, or a place for each of its
matrices); of each place, 0: in this file; n: in the n-th other file, from there on.
"""
_HERE = (0, 0)


def make_header(
    files: Mapping[str, int], output: int, quantize: str, report: Report, pool: ThreadPool
) -> None:
    """files: of the directory, by name; those that end with SUFFIX count from 1 on, in their order. quantize:
    must be empty. Raises ConversionError, OSError.
    """
    if quantize:
        raise ConversionError("what is quantized cannot stay where it is")
    given = Files(files)
    model = plan_safetensors(given, "")
    shards = {name: number for number, name in enumerate((n for n in files if n.endswith(SUFFIX)), 1)}
    found = {tensor.name: _places(tensor, model.types[tensor.name], shards) for tensor in model.tensors}
    outside = {name for name, places in found.items() if places != [_HERE]}
    metadata = model.metadata | {
        _PLACES: array("uint32", [len(places) for places in found.values()]),
        _FILES: array("uint32", [file for places in found.values() for file, _ in places]),
        _OFFSETS: array("uint64", [offset for places in found.values() for _, offset in places]),
    }
    write_model(given, output, metadata, model.tensors, model.types, report, pool, outside)


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
