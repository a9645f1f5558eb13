"""Writing a planned model: some rows of a tensor at a time, so that memory does not grow with the model."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from puna._native import NativeError, ThreadPool, write_quantized
from puna.convert.errors import ConversionError
from puna.convert.job import ConvertProgress, Report
from puna.convert.planned_tensor import PlannedTensor
from puna.convert.sources.files import Files
from puna.convert.sources.mxfp4 import TYPE, read_expert
from puna.convert.sources.values import Rows, read_floats, read_raw
from puna.gguf.writer import GgufValue, NewTensor, row_bytes, write_header

_CHUNK_VALUES = 16 << 20
_PLAIN = ("F32", "F16", "BF16")
"""Types that GGUF has, too."""
_STATUS = "converting model"
_SPARE_BYTES = 256 << 20
"""Of the disk, for others."""


def write_model(
    files: Files,
    output: int,
    metadata: Mapping[str, GgufValue],
    planned: Sequence[PlannedTensor],
    types: Mapping[str, str],
    report: Report,
    pool: ThreadPool,
    outside: Collection[str] = (),
) -> None:
    """types: of each tensor, by name. outside: tensors whose data is elsewhere. Raises ConversionError,
    OSError.
    """
    tensors = [NewTensor(tensor.name, types[tensor.name], tensor.shape[::-1]) for tensor in planned]
    with open(output, "r+b", closefd=False) as file:
        layout = write_header(file, metadata, tensors, outside)
        check_space(output, layout.num_bytes)
        for tensor, offset in zip(planned, layout.offsets, strict=True):
            if tensor.name in outside:
                continue
            for chunk, dtype in _chunks(files, tensor):
                offset += _write(pool, chunk, dtype, types[tensor.name], output, offset)
                report(ConvertProgress(_STATUS, offset, layout.num_bytes))
    report(ConvertProgress(_STATUS, layout.num_bytes, layout.num_bytes))


def _write(
    pool: ThreadPool, chunk: NDArray[np.generic], dtype: str, type_name: str, output: int, offset: int
) -> int:
    """Bytes that were written."""
    rows = chunk.view(np.uint8)
    if dtype == TYPE:
        return _copy(rows, output, offset)
    try:
        write_quantized(pool, rows, dtype, type_name, output, offset)
    except NativeError as error:
        raise ConversionError(str(error)) from error
    return row_bytes(type_name, chunk.shape[1]) * len(chunk)


def _copy(rows: NDArray[np.uint8], output: int, offset: int) -> int:
    content, written = rows.reshape(-1), 0
    while written < len(content):
        written += os.pwrite(output, content[written:].data, offset + written)
    return written


def check_space(output: int, num_bytes: int) -> None:
    """Raises ConversionError if the output would fill its disk."""
    disk = os.fstatvfs(output)
    if disk.f_bavail * disk.f_frsize < num_bytes + _SPARE_BYTES:
        raise ConversionError(f"there is no space for {num_bytes >> 20} MiB on the disk")


def _chunks(files: Files, tensor: PlannedTensor) -> Iterator[tuple[NDArray[np.generic], str]]:
    """Some rows and their type, as often as there are some."""
    if tensor.values is not None:
        yield tensor.values.reshape(1, -1), "F32"
        return
    if tensor.mxfp4 is not None:
        for expert in range(tensor.shape[0]):
            yield read_expert(files, tensor.mxfp4, expert), TYPE
        return
    is_plain = tensor.is_lossless and tensor.dtype in _PLAIN
    if tensor.is_transposed:
        for rows in tensor.rows:
            yield np.ascontiguousarray(read_floats(files, rows, 0, rows.count).T), "F32"
        return
    for rows in tensor.rows:
        for begin, count in _steps(rows, max(1, tensor.pair_rows)):
            if is_plain:
                raw = read_raw(files, rows.tensor, rows.begin + begin, count)
                yield _interleaved(raw, tensor.pair_rows), tensor.dtype
            else:
                values = _interleaved(read_floats(files, rows, begin, count), tensor.pair_rows)
                chosen = values if tensor.columns is None else values[:, tensor.columns]
                floats = np.ascontiguousarray(chosen).astype(np.float32, copy=False)
                yield floats if tensor.change is None else tensor.change(floats), "F32"


def _steps(rows: Rows, multiple: int) -> Iterator[tuple[int, int]]:
    """(begin, count) of rows that are read together."""
    step = max(1, _CHUNK_VALUES // rows.tensor.num_columns // multiple) * multiple
    for begin in range(0, rows.count, step):
        yield begin, min(step, rows.count - begin)


def _interleaved(values: NDArray[np.generic], pair_rows: int) -> NDArray[np.generic]:
    """Rows i and i + pair_rows / 2 of each head become neighbours. A vector, such as a bias, is one row."""
    if not pair_rows:
        return values
    heads = values.reshape(-1, 2, pair_rows // 2, 1 if len(values) == 1 else values.shape[1])
    return np.ascontiguousarray(heads.swapaxes(1, 2)).reshape(values.shape)
