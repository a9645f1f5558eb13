"""The header of a safetensors file: 8 bytes of length, then a JSON object of tensors by name.

Format: https://huggingface.co/docs/safetensors.
"""

from __future__ import annotations

import math
import struct

import msgspec

from puna.convert.errors import ConversionError
from puna.convert.sources.files import Files, decoded

_LENGTH = struct.Struct("<Q")
_MAX_BYTES = 100_000_000
"""Of the JSON; the format's own limit."""
_MAX_DIMENSIONS = 8
_MAX_NAME = 1024
_METADATA = "__metadata__"

DTYPE_BYTES = {
    "F64": 8, "F32": 4, "F16": 2, "BF16": 2, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1,
    "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U64": 8, "U32": 4, "U16": 2, "U8": 1, "BOOL": 1,
}  # fmt: skip


class SourceTensor(msgspec.Struct, frozen=True):
    """A tensor as its file has it."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    """Slowest first, as in NumPy."""
    file: str
    offset: int
    """Of its data, from the start of the file."""

    @property
    def num_columns(self) -> int:
        return self.shape[-1] if self.shape else 1

    @property
    def num_rows(self) -> int:
        return math.prod(self.shape[:-1])

    @property
    def row_bytes(self) -> int:
        return self.num_columns * DTYPE_BYTES[self.dtype]


class _Entry(msgspec.Struct):
    dtype: str
    shape: list[int]
    data_offsets: tuple[int, int]


def read_header(files: Files, name: str) -> list[SourceTensor]:
    """The tensors of a file, whose data lie in it and do not overlap. Raises ConversionError."""
    size = files.size(name)
    if size < _LENGTH.size:
        raise ConversionError(f"{name} has {size} bytes: it is no safetensors file")
    (length,) = _LENGTH.unpack(files.bytes_at(name, 0, _LENGTH.size).tobytes())
    if length > min(_MAX_BYTES, size - _LENGTH.size):
        raise ConversionError(f"{name} is no safetensors file: its header would have {length} bytes")
    content = files.bytes_at(name, _LENGTH.size, length).tobytes()
    start = _LENGTH.size + length
    raw = decoded(name, content, dict[str, msgspec.Raw])
    raw.pop(_METADATA, None)
    tensors = []
    ends: list[tuple[int, int, str]] = []
    for tensor, value in raw.items():
        entry = decoded(f"{name}: tensor {tensor[:100]!r}", bytes(value), _Entry)
        begin, end = _checked(f"{name}: tensor {tensor[:100]!r}", tensor, entry, size - start)
        ends.append((begin, end, tensor))
        tensors.append(SourceTensor(tensor, entry.dtype, tuple(entry.shape), name, start + begin))
    _check_apart(name, ends)
    return tensors


def _checked(where: str, tensor: str, entry: _Entry, data_bytes: int) -> tuple[int, int]:
    """Where its data begin and end."""
    if len(tensor) > _MAX_NAME or len(entry.shape) > _MAX_DIMENSIONS:
        raise ConversionError(f"{where}: its name or its shape is too long")
    if entry.dtype not in DTYPE_BYTES:
        raise ConversionError(f"{where}: type {entry.dtype[:40]!r} is not known")
    begin, end = entry.data_offsets
    if any(size < 0 for size in entry.shape) or not 0 <= begin <= end <= data_bytes:
        raise ConversionError(f"{where}: its data would lie at {begin} to {end} of {data_bytes} bytes")
    if math.prod(entry.shape) * DTYPE_BYTES[entry.dtype] != end - begin:
        raise ConversionError(f"{where}: {end - begin} bytes of data do not fit its shape")
    return begin, end


def _check_apart(name: str, places: list[tuple[int, int, str]]) -> None:
    before = 0
    for begin, end, tensor in sorted(places):
        if begin < before:
            raise ConversionError(f"{name}: the data of tensor {tensor[:100]!r} overlap another's")
        before = max(before, end)
