"""Reading the values of tensors, some rows at a time."""

from __future__ import annotations

import math

import msgspec
import numpy as np
from numpy.typing import NDArray

from puna.convert.errors import ConversionError
from puna.convert.sources.files import Files
from puna.convert.sources.header import SourceTensor

_RAW = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "F8_E4M3": "u1"}
"""How NumPy holds them: it knows no BF16 and no F8."""


class Rows(msgspec.Struct, frozen=True):
    """Some rows of a tensor, which stand for rows of a matrix."""

    tensor: SourceTensor
    begin: int
    count: int
    scale: SourceTensor | None = None
    """What the values of an F8 tensor are multiplied by: one for all, for each row, or for each block of a
    matrix.
    """

    def part(self, begin: int, count: int) -> Rows:
        """So many of them, from `begin` of them on."""
        return Rows(self.tensor, self.begin + begin, count, self.scale)


def all_rows(tensor: SourceTensor, scale: SourceTensor | None = None) -> Rows:
    """A vector is one row."""
    return Rows(tensor, 0, tensor.num_rows, scale)


def can_read(dtype: str) -> bool:
    """Whether its values are numbers that a model's weights can be."""
    return dtype in _RAW


def read_raw(files: Files, tensor: SourceTensor, begin: int, count: int) -> NDArray[np.generic]:
    """So many rows from `begin` on, in the file's type. Raises ConversionError."""
    data = files.bytes_at(tensor.file, tensor.offset + begin * tensor.row_bytes, count * tensor.row_bytes)
    return data.view(_RAW[tensor.dtype]).reshape(count, tensor.num_columns)


def read_floats(files: Files, rows: Rows, begin: int, count: int) -> NDArray[np.float32]:
    """So many of the rows, from `begin` of them on. Raises ConversionError."""
    tensor, first = rows.tensor, rows.begin + begin
    values = to_floats(read_raw(files, tensor, first, count), tensor.dtype)
    if rows.scale is not None:
        values *= _scales(files, tensor, rows.scale, first, count)
    return values


def to_floats(raw: NDArray[np.generic], dtype: str) -> NDArray[np.float32]:
    if dtype == "BF16":
        return (raw.astype(np.uint32) << 16).view(np.float32)
    if dtype == "F8_E4M3":
        numbers: NDArray[np.float32] = _F8_E4M3[raw]
        return numbers
    with np.errstate(over="ignore"):
        return raw.astype(np.float32)


def _f8_e4m3() -> NDArray[np.float32]:
    """All 256 numbers: a sign, 4 bits of exponent (bias 7) and 3 of mantissa; no infinities, one NaN."""
    code = np.arange(128)
    exponent, mantissa = code >> 3, (code & 7) / 8
    values = np.where(exponent > 0, (1 + mantissa) * 2.0 ** (exponent - 7), mantissa * 2.0**-6)
    values[127] = np.nan
    return np.concatenate([values, -values]).astype(np.float32)


_F8_E4M3 = _f8_e4m3()


def _scales(
    files: Files, tensor: SourceTensor, scale: SourceTensor, begin: int, count: int
) -> NDArray[np.float32]:
    """For `count` rows from `begin` on, in a shape that multiplies them."""
    values = to_floats(read_raw(files, scale, 0, max(1, scale.num_rows)), scale.dtype)
    if values.size == 1:
        return values.reshape(1, 1)
    grid = _grid(tensor, scale)
    num_rows, num_columns = tensor.shape[-2:]
    block_rows, block_columns = _block(scale, num_rows, grid[1]), _block(scale, num_columns, grid[2])
    matrix, row = np.divmod(np.arange(begin, begin + count), num_rows)
    of_rows = values.reshape(grid)[matrix, row // block_rows]
    return np.repeat(of_rows, block_columns, axis=1)[:, :num_columns]


def _grid(tensor: SourceTensor, scale: SourceTensor) -> tuple[int, int, int]:
    """The shape of scales for matrices of one shape: (matrices, parts of the rows, parts of the columns).
    Raises ConversionError.
    """
    matrices, said = math.prod(tensor.shape[:-2]), scale.shape
    if len(tensor.shape) >= 2:
        if len(said) == len(tensor.shape) and said[:-2] == tensor.shape[:-2]:
            return matrices, said[-2], said[-1]
        if said in (tensor.shape[:-1], (tensor.num_rows,)):
            return matrices, tensor.shape[-2], 1
        if said == tensor.shape[:-2]:
            return matrices, 1, 1
    raise ConversionError(f"tensor {scale.name[:100]!r} does not fit the tensor that it scales")


def _block(scale: SourceTensor, whole: int, parts: int) -> int:
    """How many rows (columns) share a scale: all but the last part are equally large, in powers of two."""
    if parts == whole or parts == 1:
        return 1 if parts == whole else whole
    for size in (64, 128, 256, 512):
        if -(-whole // size) == parts:
            return size
    raise ConversionError(f"tensor {scale.name[:100]!r} does not fit the tensor that it scales")
