"""Writing GGUF files (version 3, little endian): first all of the header, then each tensor in its place.

Format: docs/gguf.md of the ggml project.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, BinaryIO, NamedTuple

import msgspec
import numpy as np

from puna import _native

ALIGNMENT = 32
BLOCK_BYTES = 4096
"""Of file systems, which can give files parts in common: whole blocks of them."""
_MAGIC, _VERSION = b"GGUF", 3
_PADDING = "general.padding"
_CODES = {
    "uint8": 0, "int8": 1, "uint16": 2, "int16": 3, "uint32": 4, "int32": 5, "float32": 6, "bool": 7,
    "string": 8, "array": 9, "uint64": 10, "int64": 11, "float64": 12,
}  # fmt: skip
_NUMBERS = {
    name: np.dtype(bool if name == "bool" else name).newbyteorder("<")
    for name in _CODES
    if name not in ("string", "array")
}
_TYPES = {name: shape for name, *shape in _native.tensor_types()}


class GgufValue(NamedTuple):
    """A metadata value; types are those of puna.gguf.ValueInfo."""

    type: str
    value: Any
    item_type: str = ""
    """Of an array."""


class NewTensor(msgspec.Struct, frozen=True):
    """A tensor that is to be written."""

    name: str
    type: str
    """As ggml names it."""
    shape: tuple[int, ...]
    """In GGUF's order, fastest first: (columns, rows)."""

    @property
    def row_bytes(self) -> int:
        """Of one row; columns are a whole number of blocks."""
        return row_bytes(self.type, self.shape[0])

    @property
    def num_bytes(self) -> int:
        return self.row_bytes * math.prod(self.shape[1:])


class Layout(NamedTuple):
    """Where in the file tensors' data belong."""

    offsets: list[int]
    """From the start of the file, in the order of the tensors."""
    num_bytes: int
    """Of the whole file."""


def uint32(value: int) -> GgufValue:
    return GgufValue("uint32", value)


def int32(value: int) -> GgufValue:
    return GgufValue("int32", value)


def float32(value: float) -> GgufValue:
    return GgufValue("float32", value)


def boolean(value: bool) -> GgufValue:
    return GgufValue("bool", value)


def string(value: str) -> GgufValue:
    return GgufValue("string", value)


def strings(values: Sequence[str]) -> GgufValue:
    return GgufValue("array", values, "string")


def array(item_type: str, values: Sequence[float]) -> GgufValue:
    """Of numbers."""
    return GgufValue("array", values, item_type)


def is_block_multiple(type_name: str, num_columns: int) -> bool:
    """Whether rows of that length can have the type."""
    return num_columns % _TYPES[type_name][1] == 0


def row_bytes(type_name: str, num_columns: int) -> int:
    """Of a row of that length, which is a whole number of blocks."""
    _, block_elements, block_bytes = _TYPES[type_name]
    assert num_columns % block_elements == 0
    return num_columns // block_elements * block_bytes


def write_header(
    file: BinaryIO,
    metadata: Mapping[str, GgufValue],
    tensors: Sequence[NewTensor],
    outside: Collection[str] = (),
    phase: int | None = None,
) -> Layout:
    """Writes everything but the data, and makes the file as long as it will be; the data come into their
    places in whatever order. outside: tensors that get no place, as metadata says where they are. phase:
    where in a block the data begin; None: anywhere. Raises OSError.
    """
    padded = phase is not None
    file.write(struct.pack("<4sIQQ", _MAGIC, _VERSION, len(tensors), len(metadata) + padded))
    for key, value in metadata.items():
        _write_value(file, key, value)
    begins = list(_begins(tensors, outside))
    index = b"".join(_entry(tensor, begin) for tensor, begin in zip(tensors, begins, strict=False))
    if phase is not None:
        empty = 2 * 8 + len(_PADDING) + 4
        num_bytes = (phase - file.tell() - empty - len(index)) % BLOCK_BYTES
        _write_value(file, _PADDING, string(" " * num_bytes))
    file.write(index)
    start = aligned(file.tell())
    file.truncate(start + begins[-1])
    return Layout([start + begin for begin in begins[:-1]], start + begins[-1])


def _write_value(file: BinaryIO, key: str, value: GgufValue) -> None:
    file.write(_text(key))
    file.write(struct.pack("<I", _CODES[value.type]))
    for part in _encoded(value):
        file.write(part)


def _entry(tensor: NewTensor, begin: int) -> bytes:
    """In the index of tensors."""
    shape = struct.pack(f"<I{len(tensor.shape)}Q", len(tensor.shape), *tensor.shape)
    return _text(tensor.name) + shape + struct.pack("<IQ", _TYPES[tensor.type][0], begin)


def _begins(tensors: Sequence[NewTensor], outside: Collection[str]) -> Iterator[int]:
    """Of each tensor's data, and the end of all, from the first on."""
    begin = 0
    for tensor in tensors:
        yield begin
        if tensor.name not in outside:
            begin = aligned(begin + tensor.num_bytes)
    yield begin


def aligned(offset: int) -> int:
    """The next place where a tensor may begin."""
    return -(-offset // ALIGNMENT) * ALIGNMENT


def _encoded(value: GgufValue) -> Iterator[bytes]:
    if value.type == "string":
        yield _text(value.value)
    elif value.type != "array":
        yield np.array(value.value, _NUMBERS[value.type]).tobytes()
    else:
        yield struct.pack("<IQ", _CODES[value.item_type], len(value.value))
        if value.item_type == "string":
            yield from map(_text, value.value)
        else:
            yield np.asarray(value.value, _NUMBERS[value.item_type]).tobytes()


def _text(text: str) -> bytes:
    """Bytes that are not UTF-8 are surrogate escapes, as puna.gguf.Metadata has them."""
    encoded = text.encode(errors="surrogateescape")
    return struct.pack("<Q", len(encoded)) + encoded
