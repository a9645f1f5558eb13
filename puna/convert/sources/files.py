"""The files of a conversion: untrusted, by name."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from puna.convert.errors import ConversionError

T = TypeVar("T")

MAX_JSON_BYTES = 64 << 20


class Files:
    """Descriptors by the names of their files. Every method raises ConversionError, which names the file."""

    def __init__(self, descriptors: Mapping[str, int]) -> None:
        self.descriptors = descriptors

    def __contains__(self, name: str) -> bool:
        return name in self.descriptors

    def size(self, name: str) -> int:
        if name not in self.descriptors:
            raise ConversionError(f"{name} is missing")
        return os.fstat(self.descriptors[name]).st_size

    def read(self, name: str, max_bytes: int) -> bytes:
        """All of a file."""
        if (size := self.size(name)) > max_bytes:
            raise ConversionError(f"{name} has {size} bytes, more than {max_bytes}")
        return self.bytes_at(name, 0, size).tobytes()

    def bytes_at(self, name: str, offset: int, count: int) -> NDArray[np.uint8]:
        """So many bytes."""
        data = np.empty(count, dtype=np.uint8)
        view, done = data.data, 0
        while done < count:
            read = os.preadv(self.descriptors[name], [view[done:]], offset + done)
            if not read:
                raise ConversionError(f"{name} was cut short")
            done += read
        return data

    def json(self, name: str, kind: type[T], max_bytes: int = MAX_JSON_BYTES) -> T:
        """A file that has a value of this type."""
        return decoded(name, self.read(name, max_bytes), kind)

    def object(self, name: str) -> dict[str, Any]:
        """An object; empty where there is no such file."""
        return self.json(name, dict[str, Any]) if name in self else {}


def decoded(name: str, content: bytes, kind: type[T]) -> T:
    """name: for the error. Raises ConversionError."""
    try:
        return msgspec.json.decode(content, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConversionError(f"{name}: {error}") from error
