"""Finds the streams that a client resets. h2 tells only of those that are not closed on both sides yet."""

from __future__ import annotations

import struct
from typing import NamedTuple

_PREFACE_BYTES = len(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
_HEADER_BYTES = 9
_RST_STREAM = 3
_FRAME = struct.Struct(">HBBxII")
"""A whole RST_STREAM, and the beginning of any other frame: the length of its payload in three bytes, its
type, flags and stream, and what a reset has as its payload, the error (RFC 9113, 4.1 and 6.4)."""


class Reset(NamedTuple):
    """A client's RST_STREAM."""

    stream_id: int
    error: int
    """One of h2.errors.ErrorCodes, or a number that means nothing."""


class ResetScanner:
    """Of one connection. Keeps less than the 13 bytes that it looks at of each frame."""

    def __init__(self) -> None:
        self._rest = b""
        self._next_frame = _PREFACE_BYTES  # from the beginning of what is kept

    def scan(self, data: bytes) -> list[Reset]:
        """data: the next bytes, in which h2 has found no error."""
        data = self._rest + data
        resets, start = [], self._next_frame
        while start + _FRAME.size <= len(data):
            high, low, kind, stream_id, error = _FRAME.unpack_from(data, start)
            if kind == _RST_STREAM:
                resets.append(Reset(stream_id & 0x7FFFFFFF, error))
            start += _HEADER_BYTES + (high << 8 | low)
        self._rest = data[start:]
        self._next_frame = max(start - len(data), 0)
        return resets
