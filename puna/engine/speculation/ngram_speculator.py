"""Guesses at a sequence's next tokens from its own earlier ones, and how likely they are right."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from puna.engine.speculation.ngram import LONGEST_MATCH, NgramProposer

_UNLIKELY = 0.02  # guesses less likely than this are not worth a thought
_MEMORY = 1 / 16  # weight of the latest observation in an average

# How often a token follows a match of at least that length, before anything is known of the sequence.
_PRIOR_RATES = {2: 0.35, 3: 0.5, 4: 0.65, 8: 0.8, 16: 0.9, LONGEST_MATCH: 0.97}
_CLASSES = [max(0, sum(length >= least for least in _PRIOR_RATES) - 1) for length in range(LONGEST_MATCH + 1)]


class MatchRates:
    """How often a sequence goes on as it did at an earlier place, by the length of the match.

    This is seen at every token that has such a place, whether or not it was speculated on. So speculation
    that does not pay ends at no cost, and begins again when it would pay.
    """

    def __init__(self) -> None:
        self._rates = list(_PRIOR_RATES.values())

    def observe(self, match_length: int, was_right: bool) -> None:
        index = _CLASSES[match_length]
        self._rates[index] += _MEMORY * (was_right - self._rates[index])

    def chances(self, match_length: int, limit: int) -> list[float]:
        """Entry i: the probability that the first i + 1 guesses are all right. At most `limit` entries.

        A right guess makes the match longer, and so the next one more likely.
        """
        chances = []
        chance = 1.0
        for length in range(match_length, match_length + limit):
            chance *= self._rates[_CLASSES[min(length, LONGEST_MATCH)]]
            if chance < _UNLIKELY:
                break
            chances.append(chance)
        return chances


class NgramSpeculator:
    """Of one sequence."""

    def __init__(self, num_tokens: int = 0) -> None:
        """num_tokens: that the sequence is likely to have."""
        self._rates = MatchRates()
        self._proposer = NgramProposer(self._rates, num_tokens)

    def update(self, tokens: NDArray[np.int32]) -> None:
        """tokens: [n], the whole sequence, which only ever grows. To be called before each step."""
        self._proposer.update(tokens)

    def chances(self, limit: int) -> list[float]:
        """As MatchRates.chances; empty if there is nothing to guess from."""
        length = self._proposer.match_length
        return self._rates.chances(length, limit) if length else []

    def propose(self, count: int) -> list[int]:
        """The next `count` tokens; `count` is at most the number of chances."""
        return self._proposer.propose(count)
