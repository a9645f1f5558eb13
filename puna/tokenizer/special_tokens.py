"""Finds special tokens in text, before anything else looks at it."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from puna.tokenizer.vocabulary import TokenKind, Vocabulary

_SPACE = " \t\n\v\f\r"


class _Match(NamedTuple):
    # Compared in this order: the longest token wins over the whole text, not just where matches begin;
    # among the occurrences of one token the leftmost.
    rank: int
    start: int
    token: int
    end: int


class SpecialTokens:
    """Splits text at special tokens, the longest first."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._strips_space_after = vocabulary.strips_space_after
        user_defined = vocabulary.of_kind(TokenKind.USER_DEFINED)
        hidden = vocabulary.of_kind(TokenKind.CONTROL, TokenKind.UNKNOWN)
        self._always = _Finder({vocabulary.texts[i]: i for i in user_defined})
        self._all = _Finder({vocabulary.texts[i]: i for i in sorted(user_defined + hidden)})

    def split(self, text: str, parse_special: bool) -> list[str | int]:
        """Pieces of text (never empty) and token ids in order.

        User-defined tokens are always found; control and unknown tokens only if `parse_special`.
        """
        finder = self._all if parse_special else self._always
        pieces: list[str | int] = []
        start = 0
        for match in self._choose(text, sorted(finder.occurrences(text))):
            if match.start > start:
                pieces.append(text[start : match.start])
            pieces.append(match.token)
            start = match.end
        if start < len(text):
            pieces.append(text[start:])
        return pieces

    def _choose(self, text: str, matches: list[_Match]) -> list[_Match]:
        """Those that do not overlap an earlier one, in order of position."""
        taken = bytearray(len(text))
        chosen = []
        for match in matches:
            end = match.end
            if any(taken[match.start : end]):
                continue
            if match.token in self._strips_space_after:
                while end < len(text) and text[end] in _SPACE and not taken[end]:
                    end += 1
            taken[match.start : end] = b"\1" * (end - match.start)
            chosen.append(match._replace(end=end))
        return sorted(chosen, key=lambda match: match.start)


class _Finder:
    """All occurrences of a fixed set of tokens."""

    def __init__(self, tokens: Mapping[str, int]) -> None:
        # By first character, because a regex of all tokens tries thousands of them at every position.
        self._tokens = tokens
        by_size = sorted(tokens, key=lambda text: -len(text.encode("utf-8", "surrogateescape")))
        self._ranks = {text: rank for rank, text in enumerate(by_size)}
        lengths: defaultdict[str, set[int]] = defaultdict(set)
        for text in tokens:
            lengths[text[0]].add(len(text))
        self._lengths = {first: sorted(sizes) for first, sizes in lengths.items()}
        self._starts = re.compile(f"[{re.escape(''.join(lengths))}]") if lengths else None

    def occurrences(self, text: str) -> Iterator[_Match]:
        if self._starts is None:
            return
        for start in (match.start() for match in self._starts.finditer(text)):
            for length in self._lengths[text[start]]:
                candidate = text[start : start + length]
                if candidate in self._tokens and len(candidate) == length:
                    yield _Match(self._ranks[candidate], start, self._tokens[candidate], start + length)
