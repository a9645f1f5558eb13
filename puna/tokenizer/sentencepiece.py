"""SentencePiece's BPE: the pair whose union scores best is merged first; unknown characters become bytes."""

from __future__ import annotations

import heapq
import re
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from puna.tokenizer.byte_level import byte_value, raw_bytes
from puna.tokenizer.vocabulary import TokenKind, Vocabulary

SPACE = "▁"
_MAX_CACHED_WORDS = 10_000
_MAX_CACHED_LENGTH = 32


class SentencePieceBpe:
    """Encodes text without special tokens, and says which bytes a token stands for."""

    def __init__(self, vocabulary: Vocabulary, scores: NDArray[np.float32], add_space_prefix: bool) -> None:
        self._vocabulary = vocabulary
        # Negated, because a heap gives the smallest first.
        self._priorities: list[float] = (-scores).tolist()
        self.add_space_prefix = add_space_prefix
        self._cache: dict[str, list[int]] = {}

    def encode(self, text: str) -> list[int]:
        """`text` must be valid Unicode."""
        output: list[int] = []
        for word in self._word_boundary.split(text.replace(" ", SPACE)):
            output += self._encode_word(word)
        return output

    def token_bytes(self, token: int) -> bytes:
        """Padding and undefined tokens stand for nothing."""
        kind, text = self._vocabulary.kinds[token], self._vocabulary.texts[token]
        if kind == TokenKind.NORMAL:
            return raw_bytes(text.replace(SPACE, " "))
        if kind == TokenKind.BYTE:
            return bytes([byte_value(text)])
        if kind in (TokenKind.UNUSED, TokenKind.UNDEFINED):
            return b""
        return raw_bytes(text)

    @cached_property
    def _word_boundary(self) -> re.Pattern[str]:
        """Cuts where no token could ever reach across, so that words can be merged, and remembered, alone."""
        before_space = {SPACE}
        for text in self._vocabulary.texts:
            if text.find(SPACE, 1) > 0:
                before_space.update(a for a, b in pairwise(text) if b == SPACE)
        return re.compile(rf"(?<=[^{re.escape(''.join(sorted(before_space)))}])(?={SPACE})")

    def _encode_word(self, word: str) -> list[int]:
        if len(word) > _MAX_CACHED_LENGTH:
            return self._merge(word)
        tokens = self._cache.get(word)
        if tokens is None:
            if len(self._cache) >= _MAX_CACHED_WORDS:
                self._cache.clear()
            tokens = self._cache[word] = self._merge(word)
        return tokens

    def _merge(self, word: str) -> list[int]:
        """O(n log n): a heap of candidate pairs, those that are out of date skipped when they surface."""
        ids, priorities, length = self._vocabulary.ids, self._priorities, len(word)
        # A symbol is named by where it starts. ends[s]: where it ends, 0 once it is part of the one before.
        # before[s]: where the symbol before it starts.
        ends = list(range(1, length + 1))
        before = list(range(-1, length - 1))
        heap: list[tuple[float, int, int, int]] = []  # (priority, start, middle, end)

        def offer(start: int, middle: int, end: int) -> None:
            token = ids.get(word[start:end])
            if token is not None:
                heapq.heappush(heap, (priorities[token], start, middle, end))

        for start in range(length - 1):
            offer(start, start + 1, start + 2)
        while heap:
            _, start, middle, end = heapq.heappop(heap)
            if ends[start] != middle or ends[middle] != end:
                continue
            ends[start], ends[middle] = end, 0
            if start > 0:
                offer(before[start], start, end)
            if end < length:
                before[end] = start
                offer(start, end, ends[end])
        return self._look_up(word, ends)

    def _look_up(self, word: str, ends: list[int]) -> list[int]:
        tokens: list[int] = []
        start = 0
        while start < len(word):
            symbol = word[start : ends[start]]
            token = self._vocabulary.ids.get(symbol)
            if token is not None:
                tokens.append(token)
            else:
                tokens += [t for byte in symbol.encode() if (t := self._byte_token(byte)) is not None]
            start = ends[start]
        return tokens

    def _byte_token(self, byte: int) -> int | None:
        ids = self._vocabulary.ids
        token = ids.get(f"<0x{byte:02X}>")
        if token is None and byte < 0x80:
            token = ids.get(chr(byte))
        return self._vocabulary.unknown_id if token is None else token
