"""Byte-level BPE: words by regex, then merges by rank."""

from __future__ import annotations

from collections.abc import Sequence

import tokenizers
from tokenizers import pre_tokenizers as pre

from puna._native import BytePairs, NativeError
from puna.tokenizer.byte_level import BYTE_TO_CHAR, byte_value, decode_text, raw_bytes
from puna.tokenizer.errors import TokenizerError
from puna.tokenizer.pre_tokenizers import PreTokenizer
from puna.tokenizer.vocabulary import TokenKind, Vocabulary


class ByteLevelBpe:
    """Encodes text without special tokens, and says which bytes a token stands for.

    Raises TokenizerError if a merge needs a token that is not in the vocabulary.
    """

    add_space_prefix = False

    def __init__(self, vocabulary: Vocabulary, merges: Sequence[str], pre_tokenizer: PreTokenizer) -> None:
        self._vocabulary = vocabulary
        try:
            self._pairs = BytePairs(
                _joined(vocabulary.texts), _joined(merges), _joined(BYTE_TO_CHAR), pre_tokenizer.ignore_merges
            )
        except NativeError as error:
            raise TokenizerError(f"tokenizer.ggml.merges: {error}") from error
        self._words = pre.Sequence(
            [pre.Split(tokenizers.Regex(p), behavior="isolated") for p in pre_tokenizer.patterns]
        )

    def encode(self, text: str) -> list[int]:
        """`text` must be valid Unicode."""
        return self._pairs.encode([word for word, _ in self._words.pre_tokenize_str(text)])

    def token_bytes(self, token: int) -> bytes:
        """Padding and undefined tokens stand for nothing."""
        kind, text = self._vocabulary.kinds[token], self._vocabulary.texts[token]
        if kind == TokenKind.NORMAL:
            return decode_text(text)
        if kind == TokenKind.BYTE:
            return bytes([byte_value(text)])
        if kind in (TokenKind.UNUSED, TokenKind.UNDEFINED):
            return b""
        return raw_bytes(text)


def _joined(texts: Sequence[str]) -> bytes:
    """Separated by NUL, which nobody can find: bytes are written as other characters."""
    joined = "\0".join(texts)
    if joined.count("\0") >= len(texts):
        joined = "\0".join(text.replace("\0", "\1") for text in texts)
    return joined.encode("utf-8", "surrogateescape")
