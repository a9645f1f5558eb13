"""A GGUF file: metadata, the index of its tensors, and their data, read in place."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from puna import _native
from puna.gguf.errors import GgufError


class TensorInfo(msgspec.Struct, frozen=True):
    """One entry of the tensor index."""

    name: str
    type: str
    """As ggml names it ("Q4_K"); "type 99" for one that is not known."""
    shape: tuple[int, ...]
    """In GGUF's order, fastest first: (columns, rows)."""
    offset: int
    """Of the data, in bytes from the start of the file."""
    num_bytes: int
    """0 if the type is not known."""


class Metadata(Mapping[str, Any]):
    """Metadata values by key, in the file's order, converted when first asked for (vocabularies are large).

    Values are int, float, bool, str (bytes that are not UTF-8 as surrogate escapes), list[str] for arrays of
    strings, read-only numpy arrays for arrays of numbers, and lists of these for nested arrays. They stay
    readable after the file is closed.
    """

    def __init__(self, native: _native.GgufFile) -> None:
        self._native = native
        self._keys = dict.fromkeys(native.keys())
        self._values: dict[str, Any] = {}

    def __getitem__(self, key: str) -> Any:
        if key not in self._values:
            if key not in self._keys:
                raise KeyError(key)
            self._values[key] = self._native.value(key)
        return self._values[key]

    def __contains__(self, key: object) -> bool:
        return key in self._keys

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)


@contextmanager
def open_file(path: Path | str) -> Iterator[int]:
    """A descriptor to read the file with, closed at the end. Raises GgufError if it cannot be opened."""
    try:
        # O_NONBLOCK: opening a named pipe must not wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = error.strerror if isinstance(error, OSError) else error
        raise GgufError(f"{path}: cannot open the file: {reason}") from error
    try:
        yield descriptor
    finally:
        os.close(descriptor)


class GgufFile:
    """Opens, maps and checks a GGUF file (version 2 or 3, little endian).

    Raises GgufError if it cannot be opened or if anything in its header is wrong. The mapping goes when the
    file is closed and nothing refers to it any more: metadata, arrays of `data`, users of `native`.
    """

    def __init__(self, path: Path | str) -> None:
        with open_file(path) as descriptor:
            self._open(descriptor, str(path))

    @classmethod
    def from_descriptor(cls, descriptor: int, name: str) -> GgufFile:
        """The caller keeps its descriptor. name: for error texts."""
        file = cls.__new__(cls)
        file._open(descriptor, name)
        return file

    def _open(self, descriptor: int, name: str) -> None:
        self.name = name
        try:
            self._native: _native.GgufFile | None = _native.GgufFile(descriptor)
        except _native.NativeError as error:
            raise self._error(error) from error
        self.version = self._native.version
        self.metadata: Mapping[str, Any] = Metadata(self._native)
        tensors = (TensorInfo(*entry) for entry in self._native.tensors())
        self.tensors: Mapping[str, TensorInfo] = {tensor.name: tensor for tensor in tensors}

    @property
    def native(self) -> _native.GgufFile:
        """For backends; keeps the mapping alive. Raises GgufError after close."""
        if self._native is None:
            raise GgufError(f"{self.name}: the file is closed")
        return self._native

    def data(self, name: str) -> NDArray[np.uint8]:
        """The tensor's bytes, as a read-only view of the mapping. GgufError: no such tensor, unknown type."""
        try:
            return self.native.data(name)
        except _native.NativeError as error:
            raise self._error(error) from error

    def dequantize(self, name: str) -> NDArray[np.float32]:
        """A copy of the tensor, its shape reversed: (rows, columns). GgufError as for `data`."""
        try:
            return self.native.dequantize(name)
        except _native.NativeError as error:
            raise self._error(error) from error

    def close(self) -> None:
        self._native = None

    def __enter__(self) -> GgufFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _error(self, error: _native.NativeError) -> GgufError:
        return GgufError(f"{self.name}: {error}")
