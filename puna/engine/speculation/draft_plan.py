"""How many guessed tokens a step should verify."""

from __future__ import annotations

from collections.abc import Sequence as Items
from math import log, log1p

from puna.engine.scheduling.step_costs import StepCosts

_MOST_UNTRIED = 0.5  # of a token's share of the step: what a further one costs at most, until it was tried
_MARGIN = 1.02  # speculation must look better than none by this factor: costs are measured, so inexact


def plan_drafts(
    chances: Items[Items[float]], num_tokens: int, num_decodes: int, costs: StepCosts, round_s: float = 0.0
) -> list[int]:
    """How many guesses of each sequence the next step should verify.

    chances: by sequence, the probability that its first 1, 2, ... guesses are all right.
    num_tokens: in the step without guesses; num_decodes: those of them that are sequences' latest tokens.
    round_s: what guessing itself takes, for one token more of all sequences.

    The guesses chosen have the largest product of all decoding sequences' rates (tokens per second): what
    one sequence gains, in percent, must be more than what the longer step costs all of them together. The
    time for the tokens of prompts in the step counts as given.
    """
    counts = [0] * len(chances)
    if num_decodes < costs.fewest_tokens:
        return counts  # how long it takes without guesses is not known
    step_s, decode_s = _seconds(costs, num_tokens), _seconds(costs, num_decodes)
    order = _by_gain(chances)
    total_gain = best = 0.0
    num_best = num_rounds = 0
    for num_drafts, (gain, nth, _) in enumerate(order, start=1):
        total_gain += gain
        num_rounds = max(num_rounds, nth)
        longer_s = _seconds(costs, num_tokens + num_drafts) - step_s
        if not costs.has_seen(num_tokens + num_drafts):
            longer_s = min(longer_s, num_drafts * _MOST_UNTRIED * decode_s / num_decodes)
        slowdown = (1 + (max(longer_s, 0.0) + num_rounds * round_s) / decode_s) * _MARGIN
        if (value := total_gain - num_decodes * log(slowdown)) > best:
            best, num_best = value, num_drafts
    for _, _, index in order[:num_best]:
        counts[index] += 1
    return counts


def _seconds(costs: StepCosts, num_tokens: int) -> float:
    seconds = costs.estimate(num_tokens)
    assert seconds is not None, "no step has been seen"
    return seconds


def _by_gain(chances: Items[Items[float]]) -> list[tuple[float, int, int]]:
    """(by how much the nth guess raises the logarithm of its sequence's rate, n, sequence), best first.

    Of each sequence a guess gains less than the one before, so the first ones are a sequence's first guesses.
    """
    gains = []
    for index, of_sequence in enumerate(chances):
        expected = 1.0
        for nth, chance in enumerate(of_sequence, start=1):
            gains.append((log1p(chance / expected), nth, index))
            expected += chance
    gains.sort(key=lambda item: -item[0])
    return gains
