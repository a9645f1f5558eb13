"""The wire format of Protocol Buffers, as far as SentencePiece's models need it.

Format: https://protobuf.dev/programming-guides/encoding/.
"""

from __future__ import annotations

from collections.abc import Iterator

from puna.convert.errors import ConversionError

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FIXED_BYTES = {_FIXED64: 8, _FIXED32: 4}


def fields(message: memoryview, name: str) -> Iterator[tuple[int, int | memoryview]]:
    """(number, value) of each field: whole numbers as such, all else as bytes. name: for errors.

    Raises ConversionError.
    """
    position = 0
    while position < len(message):
        tag, position = _varint(message, position, name)
        kind = tag & 7
        if kind == _VARINT:
            value, position = _varint(message, position, name)
            yield tag >> 3, value
            continue
        if kind == _BYTES:
            length, position = _varint(message, position, name)
        elif kind in _FIXED_BYTES:
            length = _FIXED_BYTES[kind]
        else:
            raise ConversionError(f"{name}: fields of kind {kind} are not known")
        if length > len(message) - position:
            raise ConversionError(f"{name} was cut short")
        yield tag >> 3, message[position : position + length]
        position += length


def _varint(message: memoryview, position: int, name: str) -> tuple[int, int]:
    """A whole number, and where what follows begins."""
    value = 0
    for index in range(10):
        if position + index >= len(message):
            raise ConversionError(f"{name} was cut short")
        byte = message[position + index]
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value, position + index + 1
    raise ConversionError(f"{name}: a number is too long")
