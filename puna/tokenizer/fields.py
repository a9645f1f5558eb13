"""Typed access to metadata from an untrusted file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from puna._native import GgufTexts
from puna.gguf import Metadata
from puna.tokenizer.errors import TokenizerError

MAX_ENTRIES = 1 << 22
"""Of a list. The largest vocabularies in use are 16 times smaller."""


class Fields:
    """Reads `tokenizer.ggml.*` keys. Every method raises TokenizerError naming the key it could not use."""

    def __init__(self, metadata: Mapping[str, Any]) -> None:
        self._metadata = metadata

    def string(self, key: str, default: str | None = None) -> str:
        value = self._metadata.get(key, default)
        if not isinstance(value, str):
            raise self._wrong(key, "a string")
        return value

    def boolean(self, key: str) -> bool | None:
        value = self._metadata.get(key)
        if value is not None and not isinstance(value, bool):
            raise self._wrong(key, "a boolean")
        return value

    def token_id(self, key: str, vocab_size: int) -> int | None:
        """None if the file does not say."""
        value = self._metadata.get(key)
        if value is None:
            return None
        if not isinstance(value, int) or isinstance(value, bool):
            raise self._wrong(key, "an integer")
        if not 0 <= value < vocab_size:
            raise TokenizerError(f"{key}: token {value} is not in the vocabulary of {vocab_size}")
        return value

    def strings(self, key: str) -> list[str] | GgufTexts:
        """A file's long lists stay native."""
        metadata = self._metadata
        texts: list[str] | GgufTexts
        if isinstance(metadata, Metadata) and key in metadata and metadata.info(key).item_type == "string":
            texts = metadata.texts(key)
        elif isinstance(value := metadata.get(key), list) and set(map(type, value)) <= {str}:
            texts = value
        else:
            raise self._wrong(key, "an array of strings")
        if len(texts) > MAX_ENTRIES:
            raise TokenizerError(f"{key}: {len(texts)} entries are more than the limit of {MAX_ENTRIES}")
        return texts

    def numbers(self, key: str, length: int) -> NDArray[Any] | None:
        """The first `length` entries; None if the file has no such key."""
        value = self._metadata.get(key)
        if value is None:
            return None
        array = np.asarray(value)
        if array.ndim != 1 or array.dtype.kind not in "iuf":
            raise self._wrong(key, "an array of numbers")
        if len(array) < length:
            raise TokenizerError(f"{key}: {len(array)} entries for a vocabulary of {length}")
        return array[:length]

    def octets(self, key: str, limit: int) -> bytes:
        """An array of bytes; empty if the file has no such key."""
        value = self._metadata.get(key)
        if value is None:
            return b""
        array = np.asarray(value)
        if array.ndim != 1 or array.dtype not in (np.uint8, np.int8):
            raise self._wrong(key, "an array of bytes")
        if len(array) > limit:
            raise TokenizerError(f"{key}: {len(array)} bytes are more than the limit of {limit}")
        return array.tobytes()

    def _wrong(self, key: str, expected: str) -> TokenizerError:
        if key not in self._metadata:
            return TokenizerError(f"{key} is missing")
        return TokenizerError(f"{key}: expected {expected}, found {type(self._metadata[key]).__name__}")
