"""A GGUF file taken apart, so that it can be changed piece by piece and put together again.

Only for well-formed files: what is taken apart is ours, what is put together need not be well-formed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.gguf.encode import ARRAY, STRING, array, string, u32, u64

FIXED_SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}


@dataclass
class Value:
    """data: as in the file; of an array with its header."""

    key: bytes
    type: int
    data: bytes


@dataclass
class TensorRecord:
    name: bytes
    shape: list[int]
    type: int
    offset: int


@dataclass(frozen=True)
class Number:
    """A number of the header that says how long, how many, what or where."""

    at: int
    size: int


@dataclass
class Content:
    values: list[Value]
    tensors: list[TensorRecord]
    data: bytes
    version: int = 3
    alignment: int = 32
    extra_values: int = 0
    """By how much the file's number of values is wrong."""
    extra_tensors: int = 0


def parse(file: bytes) -> Content:
    reader = _Reader(file)
    reader.take(4)
    version, num_tensors, num_values = reader.u32(), reader.u64(), reader.u64()
    values = []
    for _ in range(num_values):
        key, kind = reader.string(), reader.u32()
        begin = reader.at
        reader.skip(kind)
        values.append(Value(key, kind, file[begin : reader.at]))
    tensors = []
    for _ in range(num_tensors):
        name = reader.string()
        shape = [reader.u64() for _ in range(reader.u32())]
        tensors.append(TensorRecord(name, shape, reader.u32(), reader.u64()))
    return Content(values, tensors, file[-(-reader.at // 32) * 32 :], version)


@dataclass
class Encoded:
    file: bytearray
    numbers: list[Number]
    header_size: int


def encode(content: Content) -> Encoded:
    writer = _Writer()
    writer.file += b"GGUF"
    writer.number(u32(content.version))
    writer.number(u64(max(len(content.tensors) + content.extra_tensors, 0)))
    writer.number(u64(max(len(content.values) + content.extra_values, 0)))
    for value in content.values:
        writer.string(value.key)
        writer.number(u32(value.type))
        writer.value(value)
    for tensor in content.tensors:
        writer.string(tensor.name)
        writer.number(u32(len(tensor.shape)))
        for extent in tensor.shape:
            writer.number(u64(extent % 2**64))
        writer.number(u32(tensor.type))
        writer.number(u64(tensor.offset % 2**64))
    header_size = len(writer.file)
    writer.file += bytes(-header_size % content.alignment) + content.data
    return Encoded(writer.file, writer.numbers, header_size)


def strings(value: Value) -> list[bytes]:
    """The items of an array of strings."""
    reader = _Reader(value.data)
    reader.take(12)
    return [reader.string() for _ in range(struct.unpack_from("<Q", value.data, 4)[0])]


def string_array(items: list[bytes]) -> bytes:
    return array(STRING, len(items), b"".join(map(string, items)))


@dataclass
class _Writer:
    file: bytearray = field(default_factory=bytearray)
    numbers: list[Number] = field(default_factory=list)

    def number(self, encoded: bytes) -> None:
        self.numbers.append(Number(len(self.file), len(encoded)))
        self.file += encoded

    def string(self, text: bytes) -> None:
        self.number(u64(len(text)))
        self.file += text

    def value(self, value: Value) -> None:
        begin = len(self.file)
        self.file += value.data
        if value.type == STRING:
            self.numbers.append(Number(begin, 8))
        if (
            value.type == ARRAY and len(value.data) >= 20
        ):  # its type, its length, the length of its first string
            self.numbers += [Number(begin, 4), Number(begin + 4, 8), Number(begin + 12, 8)]


@dataclass
class _Reader:
    file: bytes
    at: int = 0

    def take(self, size: int) -> bytes:
        self.at += size
        return self.file[self.at - size : self.at]

    def u32(self) -> int:
        return int.from_bytes(self.take(4), "little")

    def u64(self) -> int:
        return int.from_bytes(self.take(8), "little")

    def string(self) -> bytes:
        return self.take(self.u64())

    def skip(self, kind: int) -> None:
        if kind == STRING:
            self.string()
        elif kind == ARRAY:
            item, count = self.u32(), self.u64()
            for _ in self._items(item, count):
                self.skip(item)
        else:
            self.take(FIXED_SIZES[kind])

    def _items(self, item: int, count: int) -> Iterator[None]:
        if item in FIXED_SIZES:
            self.take(FIXED_SIZES[item] * count)
            return
        yield from (None for _ in range(count))
