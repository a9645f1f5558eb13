"""A header for a directory of safetensors whose weights stay where they are.

It is a GGUF file with all metadata and an index of all tensors. Where safetensors have a tensor's data just
as GGUF has them, they are not in it: it says where they lie (puna.tensors.*).
"""

from __future__ import annotations

from collections.abc import Mapping

from puna._native import ThreadPool
from puna.convert.errors import ConversionError
from puna.convert.job import Report
from puna.convert.output import write_model
from puna.convert.planned_tensor import PlannedTensor
from puna.convert.safetensors import plan_safetensors
from puna.convert.sources.files import Files
from puna.convert.sources.header import DTYPE_BYTES
from puna.gguf.writer import array

SUFFIX = ".safetensors"
_FILES, _OFFSETS = "puna.tensors.file", "puna.tensors.offset"
"""Of each tensor, in the order of the index: 0: in this file; n: in the n-th other file, from there on."""


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
    places = [_place(tensor, model.types[tensor.name], shards) for tensor in model.tensors]
    metadata = model.metadata | {
        _FILES: array("uint32", [place[0] for place in places]),
        _OFFSETS: array("uint64", [place[1] for place in places]),
    }
    outside = {tensor.name for tensor, place in zip(model.tensors, places, strict=True) if place[0]}
    write_model(given, output, metadata, model.tensors, model.types, report, pool, outside)


def _place(tensor: PlannedTensor, type_name: str, shards: Mapping[str, int]) -> tuple[int, int]:
    """The file that has the tensor just as GGUF would, and from which byte on; (0, 0): none has."""
    if not tensor.is_lossless or tensor.pair_rows or tensor.dtype != type_name:
        return 0, 0
    begin, number = _begin(tensor), shards.get(tensor.rows[0].tensor.file)
    if begin is None or number is None or begin % DTYPE_BYTES[tensor.dtype]:
        return 0, 0
    return number, begin


def _begin(tensor: PlannedTensor) -> int | None:
    """Where its rows begin; None: they do not lie behind each other."""
    first = tensor.rows[0]
    begin = end = first.tensor.offset + first.begin * first.tensor.row_bytes
    for rows in tensor.rows:
        if (
            rows.tensor.file != first.tensor.file
            or rows.tensor.offset + rows.begin * rows.tensor.row_bytes != end
        ):
            return None
        end += rows.count * rows.tensor.row_bytes
    return begin
