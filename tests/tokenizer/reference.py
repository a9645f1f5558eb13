"""What the native tokenizer must give, written down as simply as possible; takes quadratic time."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

SPACE = "▁"


def find_special(
    text: str, tokens: Mapping[str, int], strips_space_after: frozenset[int] = frozenset()
) -> list[tuple[int, int, int]]:
    """(start, end, token), as llama.cpp chooses: for each token, the longest first, look for it in the whole
    text, wherever nothing has been found yet.
    """
    taken = [False] * len(text)
    found = []
    for token_text, token in sorted(tokens.items(), key=lambda item: (-len(item[0].encode()), item[1])):
        start = text.find(token_text)
        while start >= 0:
            end = start + len(token_text)
            if not any(taken[start:end]):
                while token in strips_space_after and end < len(text) and text[end] in " \t\n\v\f\r":
                    if taken[end]:
                        break
                    end += 1
                taken[start:end] = [True] * (end - start)
                found.append((start, end, token))
            start = text.find(token_text, start + 1)
    return sorted(found)


def merge_by_score(text: str, scores: Mapping[str, float]) -> list[str]:
    """The symbols of a text: the two neighbours whose union scores best merge, among equals the leftmost."""
    symbols = list(text.replace(" ", SPACE))
    while True:
        unions = [
            (-scores[left + right], index)
            for index, (left, right) in enumerate(pairwise(symbols))
            if left + right in scores
        ]
        if not unions:
            return symbols
        _, index = min(unions)
        symbols[index : index + 2] = [symbols[index] + symbols[index + 1]]
