"""Writing a planned model: some rows of a tensor at a time, so that memory does not grow with the model."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from puna.convert.errors import ConversionError
from puna.convert.job import ConvertProgress, Report
from puna.convert.packing import pack
from puna.convert.plan import PlannedTensor
from puna.convert.sources.files import Files
from puna.convert.sources.values import read_floats, read_raw
from puna.gguf.writer import GgufValue, NewTensor, write_header

_CHUNK_VALUES = 16 << 20
_SPARE_BYTES = 256 << 20
"""Of the disk, for others."""


def write_model(
    files: Files,
    output: int,
    metadata: Mapping[str, GgufValue],
    planned: Sequence[PlannedTensor],
    types: Mapping[str, str],
    report: Report,
) -> None:
    """types: of each tensor, by name. Raises ConversionError, OSError."""
    tensors = [NewTensor(tensor.name, types[tensor.name], tensor.shape[::-1]) for tensor in planned]
    with open(output, "r+b", closefd=False) as file:
        layout = write_header(file, metadata, tensors)
        check_space(output, layout.num_bytes)
        for tensor, offset in zip(planned, layout.offsets, strict=True):
            file.seek(offset)
            report(ConvertProgress("converting model", offset, layout.num_bytes))
            for chunk in _chunks(files, tensor, types[tensor.name]):
                file.write(chunk.data)
                report(ConvertProgress("converting model", file.tell(), layout.num_bytes))
    report(ConvertProgress("converting model", layout.num_bytes, layout.num_bytes))


def check_space(output: int, num_bytes: int) -> None:
    """Raises ConversionError if the output would fill its disk."""
    disk = os.fstatvfs(output)
    if disk.f_bavail * disk.f_frsize < num_bytes + _SPARE_BYTES:
        raise ConversionError(f"there is no space for {num_bytes >> 20} MiB on the disk")


def _chunks(files: Files, tensor: PlannedTensor, type_name: str) -> Iterator[NDArray[np.generic]]:
    if tensor.values is not None:
        yield pack(tensor.values.reshape(1, -1), type_name)
        return
    takes_bytes = tensor.is_lossless and tensor.dtype == type_name
    for rows in tensor.rows:
        step = max(1, _CHUNK_VALUES // rows.tensor.num_columns)
        step = max(1, step // max(1, tensor.pair_rows)) * max(1, tensor.pair_rows)
        for begin in range(0, rows.count, step):
            count = min(step, rows.count - begin)
            if takes_bytes:
                raw = read_raw(files, rows.tensor, rows.begin + begin, count)
                yield np.ascontiguousarray(_interleaved(raw, tensor.pair_rows))
            else:
                values = _interleaved(read_floats(files, rows, begin, count), tensor.pair_rows)
                yield pack(np.ascontiguousarray(values + 1 if tensor.adds_one else values), type_name)


def _interleaved(values: NDArray[np.generic], pair_rows: int) -> NDArray[np.generic]:
    """Rows i and i + pair_rows / 2 of each head become neighbours. A vector, such as a bias, is one row."""
    if not pair_rows:
        return values
    heads = values.reshape(-1, 2, pair_rows // 2, 1 if len(values) == 1 else values.shape[1])
    return heads.swapaxes(1, 2).reshape(values.shape)
