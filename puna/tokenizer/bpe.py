"""Byte-level BPE: words by regex, bytes as characters, merges by rank."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import tokenizers
from tokenizers import models
from tokenizers import pre_tokenizers as pre

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
        ids = _utf8_only(vocabulary.ids)
        # A byte without a token must still keep its neighbours apart; its placeholder is dropped afterwards.
        missing = (char for char in BYTE_TO_CHAR if char not in ids)
        placeholders = {char: len(vocabulary) + i for i, char in enumerate(missing)}
        self._drops = bool(placeholders)
        model = models.BPE(
            vocab={**ids, **placeholders},
            merges=_split_merges(merges, ids),
            ignore_merges=pre_tokenizer.ignore_merges,
        )
        self._tokenizer = tokenizers.Tokenizer(model)
        words = [pre.Split(tokenizers.Regex(p), behavior="isolated") for p in pre_tokenizer.patterns]
        to_characters = pre.ByteLevel(add_prefix_space=False, use_regex=False)
        self._tokenizer.pre_tokenizer = pre.Sequence([*words, to_characters])

    def encode(self, text: str) -> list[int]:
        """`text` must be valid Unicode."""
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        if self._drops:
            vocab_size = len(self._vocabulary)
            return [token for token in ids if token < vocab_size]
        return ids

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


def _utf8_only(ids: Mapping[str, int]) -> dict[str, int]:
    """Without texts that are not UTF-8: no merge can make them, and the library cannot take them."""
    try:
        "\0".join(ids).encode()
    except UnicodeEncodeError:
        return {text: token for text, token in ids.items() if _is_utf8(text)}
    return dict(ids)


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _split_merges(merges: Sequence[str], ids: Mapping[str, int]) -> list[tuple[str, str]]:
    """Pairs by rank; the first of equal merges counts."""
    # Whole sets at a time: a quarter million merges must not cost a quarter second.
    splits = [merge.partition(" ") for merge in merges]
    needed = {left for left, _, _ in splits} | {right for _, _, right in splits}
    needed.update([left + right for left, _, right in splits])
    if unknown := needed - ids.keys():
        raise TokenizerError(f"tokenizer.ggml.merges: {min(unknown)!r} is not in the vocabulary")
    return list(dict.fromkeys((left, right) for left, _, right in splits))
