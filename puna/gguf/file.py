"""A GGUF file: metadata, the index of its tensors, and their data, mapped."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from puna import _native
from puna.gguf.errors import GgufError
from puna.gguf.metadata import read_metadata

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def open_descriptor(path: Path | str) -> int:
    """To read the file with, for the caller to close. Raises GgufError if it cannot be opened."""
    try:
        # O_NONBLOCK: opening a named pipe must not wait for a writer.
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = error.strerror if isinstance(error, OSError) else error
        raise GgufError(f"{path}: cannot open the file: {reason}") from error


@contextmanager
def open_file(path: Path | str) -> Iterator[int]:
    """A descriptor to read the file with, closed at the end. Raises GgufError if it cannot be opened."""
    descriptor = open_descriptor(path)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


class GgufFile:
    """Opens, maps and checks a GGUF file (version 2 or 3, little endian).

    Raises GgufError if it cannot be opened or if anything in its header is wrong. The mapping goes when the
    file is closed and nothing refers to it any more: arrays of `data`, users of `native`. Metadata can be
    read as long as somebody has it.
    """

    def __init__(self, path: Path | str) -> None:
        with open_file(path) as descriptor:
            self._open([descriptor], str(path))

    @classmethod
    def from_descriptor(
        cls, descriptor: int, name: str, others: Sequence[int] = (), *, as_published: bool = False
    ) -> GgufFile:
        """others: of files that its tensors lie in besides. The caller keeps its descriptors. name: for error
        texts. as_published: see Metadata.
        """
        file = cls.__new__(cls)
        file._open([descriptor, *others], name, as_published=as_published)
        return file

    def _open(self, descriptors: Sequence[int], name: str, *, as_published: bool = False) -> None:
        self.name = name
        self.metadata = read_metadata(descriptors[0], name, as_published=as_published)
        self.tensors = self.metadata.tensors
        try:
            self._native: _native.GgufFile | None = _native.GgufFile(self.metadata.native, descriptors[1:])
        except _native.NativeError as error:
            raise self._error(error) from error

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

    def check_whole(self) -> None:
        """After reading data: GgufError if the file has been cut short, and zeros were read instead (where
        bus errors are caught).
        """
        try:
            self.native.check_whole()
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
