"""What a GGUF file says of itself: metadata values and the index of its tensors, read from a descriptor."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from puna import _native
from puna.gguf.errors import GgufError
from puna.gguf.published import Translation, translation_of
from puna.gguf.published_heads import published_head
from puna.gguf.tensor_info import TensorInfo

if TYPE_CHECKING:
    from numpy.typing import NDArray

_CHUNK_ITEMS = 1 << 12


class ValueInfo(msgspec.Struct, frozen=True):
    """What is known of a metadata value before it is read."""

    key: str
    type: str
    """As the GGUF specification names it: "uint32", "string", "array"."""
    item_type: str
    """Of an array; otherwise empty."""
    num_items: int
    """Of an array; otherwise 0."""


_ABOUT_KIND = ("general.architecture", "general.type", "adapter.type")
"""What everybody asks for who reads a file."""


class Metadata(Mapping[str, Any]):
    """Metadata values by key, in the file's order, each read when it is asked for: vocabularies are large.

    Values are int, float, bool, str (bytes that are not UTF-8 as surrogate escapes), list[str] for arrays of
    strings, read-only numpy arrays for arrays of numbers, and lists of these for nested arrays. Reading one
    raises GgufError where the file has been cut short since it was opened.

    tensors: the tensor index by name.

    A file in a form of Ollama's own is read as if it was in llama.cpp's (puna.gguf.published), unless it is
    wanted as_published. as_stored: without tensors whose data are not in the file as they are read.
    """

    def __init__(
        self, native: _native.GgufMetadata, name: str, *, as_published: bool = False, as_stored: bool = False
    ) -> None:
        self.native = native
        self.name = name
        self.version = native.version
        self._values = {entry[0]: ValueInfo(*entry) for entry in native.entries()}
        self._keys: Mapping[str, str] = {}
        """In the file, of those that are read by another one."""
        self._changed: Mapping[str, Any] = {}
        self.is_translated = False
        """It is in a form of Ollama's own, and read as if it was in llama.cpp's."""
        self.tensors: Mapping[str, TensorInfo] = self._read_tensors()
        for key in _ABOUT_KIND:
            if not isinstance(self.get(key, ""), str):
                raise GgufError(f"{name}: metadata {key} is not a string")
        if as_published:
            return
        shapes = {name: tensor.shape for name, tensor in self.tensors.items()}
        head = None if as_stored else published_head(self, self.tensors)
        if translation := translation_of(self, shapes, head):
            self._translate(translation)

    def _read_tensors(self) -> dict[str, TensorInfo]:
        tensors = (TensorInfo(*entry) for entry in self.native.tensors())
        return {tensor.name: tensor for tensor in tensors}

    def _translate(self, translation: Translation) -> None:
        head = translation.head
        try:
            for joined, matrices in head.joined.items() if head else ():
                self.native.join_tensors(joined, list(matrices))
            for tensor in head.plus_one if head else ():
                self.native.add_one(tensor)
            self.native.rename_tensors(dict(translation.tensors))
        except _native.NativeError as error:
            raise GgufError(f"{self.name}: {error}") from error
        self.tensors = self._read_tensors()
        self._values |= {key: self._values[old] for key, old in translation.keys.items()}
        self._values |= {key: _info(key, value) for key, value in translation.values.items()}
        self._keys, self._changed = translation.keys, translation.values
        self.is_translated = True

    def __getitem__(self, key: str) -> Any:
        if key not in self._values:
            raise KeyError(key)
        if key in self._changed:
            return self._changed[key]
        try:
            return self.native.value(self._keys.get(key, key))
        except _native.NativeError as error:
            raise GgufError(f"{self.name}: {error}") from error

    def __contains__(self, key: object) -> bool:
        return key in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def info(self, key: str) -> ValueInfo:
        """Without reading the value. Raises KeyError."""
        return self._values[key]

    def texts(self, key: str) -> _native.GgufTexts:
        """An array of strings that need not become Python's. Raises KeyError, GgufError for any other."""
        if key not in self._values:
            raise KeyError(key)
        try:
            return self.native.texts(self._keys.get(key, key))
        except _native.NativeError as error:
            raise GgufError(f"{self.name}: {error}") from error

    def chunks(self, key: str) -> Iterator[list[Any] | NDArray[Any]]:
        """An array's items, a few at a time, so that a long one costs little memory.

        Raises KeyError, GgufError for what is not an array.
        """
        if key not in self._values:
            raise KeyError(key)
        if key in self._changed:
            yield self._changed[key]
            return
        try:
            items = self.native.items(self._keys.get(key, key))
            while len(chunk := items.read(_CHUNK_ITEMS)):
                yield chunk
        except _native.NativeError as error:
            raise GgufError(f"{self.name}: {error}") from error


def _info(key: str, value: Any) -> ValueInfo:
    """Of a value that is not in the file."""
    match value:
        case str():
            return ValueInfo(key, "string", "", 0)
        case int():
            return ValueInfo(key, "uint32", "", 0)
        case float():
            return ValueInfo(key, "float32", "", 0)
        case list():
            return ValueInfo(key, "array", "string", len(value))
    return ValueInfo(key, "array", str(value.dtype), len(value))


def read_metadata(
    descriptor: int, name: str, *, as_published: bool = False, as_stored: bool = False
) -> Metadata:
    """Reads and checks header, metadata and tensor index of a GGUF file (version 2 or 3, little endian).

    Nothing is mapped: a file that is cut short meanwhile is an error, and memory goes only to what is asked
    for. The caller keeps its descriptor. name: for error texts; the others: see Metadata. Raises GgufError,
    which says what is wrong.
    """
    try:
        native = _native.GgufMetadata(descriptor)
    except _native.NativeError as error:
        raise GgufError(f"{name}: {error}") from error
    return Metadata(native, name, as_published=as_published, as_stored=as_stored)
