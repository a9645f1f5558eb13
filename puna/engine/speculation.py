"""Speculative decoding: guesses at a sequence's next tokens, and how many of them a step should verify.

A step that computes a sequence's last token and k guessed ones yields 1 to k + 1 tokens, the very ones that
single steps would have given. It pays if the guesses are right often enough for what the step takes longer.
"""

from __future__ import annotations

from collections.abc import Sequence as Items
from math import log, log1p
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from puna.engine.ngram import LONGEST_MATCH, NgramProposer

MAX_DRAFT = 16
"""Guesses of one sequence in one step, at most."""
_UNLIKELY = 0.02  # guesses less likely than this are not considered
_MARGIN = 1.02  # speculation must look better than none by this factor: costs are measured, so inexact
_MEMORY = 1 / 16  # weight of the latest observation in an average

# How often a token follows a match of at least that length, before anything is known of the sequence.
_PRIOR_RATES = {2: 0.35, 3: 0.5, 4: 0.65, 8: 0.8, 16: 0.9, LONGEST_MATCH: 0.97}
_CLASSES = [max(0, sum(length >= least for least in _PRIOR_RATES) - 1) for length in range(LONGEST_MATCH + 1)]


class StepCostEstimator(Protocol):
    """How long steps of one model take on this machine."""

    def estimate(self, num_tokens: int) -> float | None:
        """Seconds for a step of that many tokens; None: not known."""


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
    """One sequence's guesses, from its own tokens."""

    def __init__(self) -> None:
        self._rates = MatchRates()
        self._proposer = NgramProposer(self._rates)

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


def plan_drafts(
    chances: Items[Items[float]], num_tokens: int, num_decodes: int, costs: StepCostEstimator
) -> list[int]:
    """How many guesses of each sequence the next step should verify.

    chances: by sequence, the probability that its first 1, 2, ... guesses are all right.
    num_tokens: in the step without guesses; num_decodes: those of them that are sequences' latest tokens.

    The guesses chosen have the largest product of all decoding sequences' rates (tokens per second): what
    one sequence gains, in percent, must be more than what the longer step costs all of them together. The
    time for the tokens of prompts in the step counts as given.
    """
    counts = [0] * len(chances)
    step_s, decode_s = costs.estimate(num_tokens), costs.estimate(num_decodes)
    if step_s is None or decode_s is None:
        return counts
    order = _by_gain(chances)
    total_gain = best = 0.0
    num_best = 0
    for num_drafts, (gain, _) in enumerate(order, start=1):
        longer_s = costs.estimate(num_tokens + num_drafts)
        if longer_s is None:
            break
        total_gain += gain
        slowdown = max(1.0, 1 + (longer_s - step_s) / decode_s) * _MARGIN
        if (value := total_gain - num_decodes * log(slowdown)) > best:
            best, num_best = value, num_drafts
    for _, index in order[:num_best]:
        counts[index] += 1
    return counts


def _by_gain(chances: Items[Items[float]]) -> list[tuple[float, int]]:
    """(by how much a guess raises the logarithm of its sequence's rate, sequence), best first.

    Of each sequence a guess gains less than the one before, so the first ones are a sequence's first guesses.
    """
    gains = []
    for index, of_sequence in enumerate(chances):
        expected = 1.0
        for chance in of_sequence:
            gains.append((log1p(chance / expected), index))
            expected += chance
    gains.sort(key=lambda item: -item[0])
    return gains
