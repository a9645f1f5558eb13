"""Speculative decoding: guesses at a sequence's next tokens, and how many of them a step should verify.

A step that computes a sequence's last token and k guessed ones yields 1 to k + 1 tokens, the very ones that
single steps would have given. It pays if the guesses are right often enough for what the step takes longer.
"""

from __future__ import annotations

from collections.abc import Sequence as Items
from itertools import takewhile
from math import log, log1p

from puna.engine.batch import Slice
from puna.engine.sequence import Sequence
from puna.engine.step_costs import StepCosts

MAX_DRAFT = 16
"""Guesses of one sequence in one step, at most."""
_MARGIN = 1.02  # speculation must look better than none by this factor: costs are measured, so inexact


def add_drafts(slices: list[Slice], costs: StepCosts) -> list[Slice]:
    """The same step, with guesses behind the sequences' latest tokens where that pays.

    costs: of the step's model. Nobody is preempted for guesses: where blocks are short, there are none.
    """
    chances = [_chances(s) for s in slices]
    if not any(chances):
        return slices
    num_decodes = sum(s.decodes for s in slices)
    counts = plan_drafts(chances, sum(s.num_tokens for s in slices), num_decodes, costs)
    return [
        s._replace(drafts=_drafts(s.sequence, count)) if count else s
        for s, count in zip(slices, counts, strict=True)
    ]


def _chances(s: Slice) -> list[float]:
    """As MatchRates.chances; empty if there is nothing to guess, or from."""
    sequence = s.sequence
    if sequence.speculator is None or not s.decodes:
        return []
    sequence.speculator.update(sequence.tokens)
    return sequence.speculator.chances(_limit(sequence))


def _limit(sequence: Sequence) -> int:
    """Drafts of the next step, at most: one token is drawn in any case, and none beyond the end."""
    wanted = sequence.request.num_draft
    limit = MAX_DRAFT if wanted is None else min(wanted, MAX_DRAFT)
    room = sequence.context_length - sequence.position
    return int(min(limit, sequence.max_tokens - sequence.num_generated - 1, room - 1))


def _drafts(sequence: Sequence, count: int) -> list[int]:
    assert sequence.speculator is not None
    # A stop token would be drawn without a guess, and there is nothing behind it.
    drafts = list(
        takewhile(lambda token: token not in sequence.stop_tokens, sequence.speculator.propose(count))
    )
    return drafts if sequence.table.grow(sequence.position + 1 + len(drafts)) else []


def plan_drafts(
    chances: Items[Items[float]], num_tokens: int, num_decodes: int, costs: StepCosts
) -> list[int]:
    """How many guesses of each sequence the next step should verify.

    chances: by sequence, the probability that its first 1, 2, ... guesses are all right.
    num_tokens: in the step without guesses; num_decodes: those of them that are sequences' latest tokens.

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
    num_best = 0
    for num_drafts, (gain, _) in enumerate(order, start=1):
        total_gain += gain
        longer_s = _seconds(costs, num_tokens + num_drafts) - step_s
        slowdown = (1 + max(longer_s, 0.0) / decode_s) * _MARGIN
        if (value := total_gain - num_decodes * log(slowdown)) > best:
            best, num_best = value, num_drafts
    for _, index in order[:num_best]:
        counts[index] += 1
    return counts


def _seconds(costs: StepCosts, num_tokens: int) -> float:
    seconds = costs.estimate(num_tokens)
    assert seconds is not None, "no step has been seen"
    return seconds


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
