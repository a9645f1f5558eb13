"""GGUF files made by hand, byte for byte: what no proper writer would write."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

UINT8, INT8, UINT16, INT16, UINT32, INT32, FLOAT32, BOOL, STRING, ARRAY, UINT64, INT64, FLOAT64 = range(13)
F32 = 0


def u32(value: int) -> bytes:
    return struct.pack("<I", value)


def u64(value: int) -> bytes:
    return struct.pack("<Q", value)


def string(text: str | bytes) -> bytes:
    raw = text.encode() if isinstance(text, str) else text
    return u64(len(raw)) + raw


def key(name: str | bytes, value_type: int, value: bytes) -> bytes:
    return string(name) + u32(value_type) + value


def array(element_type: int, count: int, elements: bytes) -> bytes:
    return u32(element_type) + u64(count) + elements


@dataclass
class Tensor:
    name: str | bytes = "t"
    shape: Sequence[int] = (4,)
    type: int = F32
    offset: int = 0
    num_dimensions: int | None = None

    def encode(self) -> bytes:
        count = len(self.shape) if self.num_dimensions is None else self.num_dimensions
        shape = b"".join(u64(extent) for extent in self.shape)
        return string(self.name) + u32(count) + shape + u32(self.type) + u64(self.offset)


def gguf_bytes(
    keys: Sequence[bytes] = (),
    tensors: Sequence[Tensor] = (),
    data: bytes = b"",
    *,
    magic: bytes = b"GGUF",
    version: int = 3,
    num_keys: int | None = None,
    num_tensors: int | None = None,
    alignment: int = 32,
) -> bytes:
    header = magic + u32(version)
    header += u64(len(tensors) if num_tensors is None else num_tensors)
    header += u64(len(keys) if num_keys is None else num_keys)
    header += b"".join(keys) + b"".join(tensor.encode() for tensor in tensors)
    return header + bytes(-len(header) % alignment) + data
