"""How many tokens of prompts there are that no cache could have known."""

from __future__ import annotations

from bisect import bisect
from itertools import takewhile


class Unique:
    """The nodes of the trie of all prompts so far, counted."""

    def __init__(self) -> None:
        self._prompts: list[list[int]] = []  # sorted: the longest common beginning is that of a neighbour
        self.total = 0

    def add(self, prompt: list[int]) -> int:
        """Tokens behind the longest beginning that an earlier prompt has, too."""
        place = bisect(self._prompts, prompt)
        neighbours = self._prompts[max(place - 1, 0) : place + 1]
        new = len(prompt) - max((_common(prompt, other) for other in neighbours), default=0)
        self._prompts.insert(place, prompt)
        self.total += new
        return new


def _common(a: list[int], b: list[int]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False)))
