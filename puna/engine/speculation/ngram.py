"""What followed the latest tokens where the same tokens stood before: the cheapest of guesses."""

from __future__ import annotations

from array import array
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

LONGEST_MATCH = 32
"""Longer matches count as this long."""
_GOOD_MATCH = 8  # from here on, nothing better is looked for
_NUM_CANDIDATES = 6  # earlier places that are looked at
_MOST_STEPS = 24  # on the way to them
_FEWEST_SLOTS, _MOST_SLOTS = 1 << 13, 1 << 17
_MOST_INDEXED = 4096  # tokens indexed at a time; takes half a millisecond


def num_slots(num_tokens: int) -> int:
    """Of the table of pairs: a power of two, twice as many as tokens, within bounds."""
    return min(max(1 << (2 * num_tokens).bit_length(), _FEWEST_SLOTS), _MOST_SLOTS)


class MatchObserver(Protocol):
    """Told at each new token whether it was the one that followed a match of that length earlier."""

    def observe(self, match_length: int, was_right: bool) -> None: ...


class NgramProposer:
    """Guesses the next tokens of one sequence. Takes 8 bytes for each of its tokens, and up to 512 KiB.

    The source is an earlier place whose last tokens are those of the sequence's end; `match_length` says how
    many. As long as the sequence goes on as it did there, the source moves along; otherwise it is looked up
    among the latest places of the last two tokens: the longest match wins, the latest of equals.

        ... a b c d e ........ a b c
                  ^ source            match_length 3, the guess is d e ...
    """

    def __init__(self, observer: MatchObserver, num_tokens: int = 0) -> None:
        """num_tokens: that the sequence is likely to have; with many more, some earlier places are missed."""
        self.match_length = 0
        """Tokens before the source that equal the sequence's last ones; 0: there is no source."""
        self._observer = observer
        self._tokens = array("i")
        self._source = 0
        # Where the second token of a pair of this hash stood last; -1: nowhere.
        self._latest = array("i", [-1]) * num_slots(num_tokens)
        self._previous = array("i")  # where such a pair stood before the one that ends here

    def update(self, tokens: NDArray[np.int32]) -> None:
        """Takes in what is new. tokens: [n], the whole sequence, which only ever grows.

        Of very many new tokens only some are taken in at each call; until all are, nothing is guessed.
        """
        num_known = len(self._tokens)
        new = tokens[num_known : num_known + _MOST_INDEXED].tolist()
        self._tokens.extend(new)
        for token in new:
            if self.match_length == 0:
                break
            self._follow(token)
        self._index(new)
        if len(self._tokens) < len(tokens):
            self.match_length = 0
        elif self.match_length < _GOOD_MATCH:
            self._search()

    def propose(self, count: int) -> list[int]:
        """The next `count` tokens; none if there is no source.

        Where the source reaches the sequence's end, it goes on in the guess itself: what repeats with a short
        period is expected to go on repeating.
        """
        if self.match_length == 0 or count == 0:
            return []
        known = self._tokens[self._source : self._source + count].tolist()
        return (known * -(-count // len(known)))[:count]

    def _follow(self, token: int) -> None:
        was_right = self._tokens[self._source] == token
        self._observer.observe(self.match_length, was_right)
        self._source += 1
        self.match_length = min(self.match_length + 1, LONGEST_MATCH) if was_right else 0

    def _index(self, new: list[int]) -> None:
        latest, previous, mask = self._latest, self._previous, len(self._latest) - 1
        position = len(previous)
        before = self._tokens[position - 1] if position else -1  # -1: the first token ends no pair
        for token in new:
            # Odd factors, so that each of two tokens alone decides the slot among pairs with the same other.
            slot = (before * 0x9E3779B1 + token * 0x85EBCA77 >> 12) & mask
            previous.append(latest[slot])
            latest[slot] = position
            position += 1
            before = token

    def _search(self) -> None:
        """Moves the source to a place with a longer match, if there is one."""
        tokens, last = self._tokens, len(self._tokens) - 1
        candidate = self._previous[last] if last > 0 else -1
        num_left = _NUM_CANDIDATES
        for _ in range(_MOST_STEPS):
            # To be longer, a match must at least go on where the best one so far ends.
            length = self.match_length or 1
            if candidate < length or length == LONGEST_MATCH or num_left == 0:
                return
            if tokens[candidate] == tokens[last] and tokens[candidate - 1] == tokens[last - 1]:
                num_left -= 1
                if tokens[candidate - length] == tokens[last - length]:
                    length = self._common_length(candidate)
                    if length > self.match_length:
                        self.match_length, self._source = length, candidate + 1
            candidate = self._previous[candidate]

    def _common_length(self, candidate: int) -> int:
        """How many tokens up to this place equal the sequence's last ones. The last two are known to."""
        tokens, last = self._tokens, len(self._tokens) - 1
        longest = min(LONGEST_MATCH, candidate + 1)
        length = 2
        while length < longest and tokens[candidate - length] == tokens[last - length]:
            length += 1
        return length
