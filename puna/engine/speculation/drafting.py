"""Speculative decoding: guesses at sequences' next tokens are verified in the step of the latest ones.

A step with a sequence's latest token and k guesses behind it yields 1 to k + 1 tokens, the very ones that
single steps would have given. It pays if the guesses are right often enough for what the step takes longer.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence as Items
from itertools import takewhile

from puna.engine.scheduling.sequence import Sequence
from puna.engine.scheduling.step_costs import StepCosts
from puna.engine.speculation.draft_plan import plan_drafts
from puna.engine.speculation.draft_state import Guesser
from puna.engine.steps.batch import Slice

MAX_DRAFT = 16
"""Guesses of one sequence in one step, at most."""


def add_drafts(slices: list[Slice], costs: StepCosts) -> list[Slice]:
    """The same step, with guesses behind the sequences' latest tokens where that pays.

    costs: of the step's model. Nobody is preempted for guesses: where blocks are short, there are none.
    """
    slices = _guess_from_text(slices, costs)
    states = [s.sequence.draft for s in slices if s.decodes]
    for model in dict.fromkeys(state.model for state in states if state is not None):
        slices = _guess_by_model(slices, costs, model)
    return slices


def _guess_from_text(slices: list[Slice], costs: StepCosts) -> list[Slice]:
    chances = [_text_chances(s) for s in slices]
    if not any(chances):
        return slices
    slices = list(slices)
    for index, count in enumerate(_plan(slices, chances, costs)):
        speculator = slices[index].sequence.speculator
        if count and speculator is not None:
            slices[index] = _with_drafts(slices[index], speculator.propose(count))
    return slices


def _text_chances(s: Slice) -> list[float]:
    """The probability that its first 1, 2, ... guesses are all right; empty if there is nothing to guess."""
    sequence = s.sequence
    if sequence.speculator is None or not s.decodes:
        return []
    sequence.speculator.update(sequence.tokens)
    chances = sequence.speculator.chances(_limit(sequence))
    if sequence.draft is not None and chances and chances[0] < sequence.draft.rate:
        return []  # its draft model does better
    return chances


def _guess_by_model(slices: list[Slice], costs: StepCosts, model: Guesser) -> list[Slice]:
    chances = [_model_chances(s, model) for s in slices]
    num_guessing = sum(map(bool, chances))
    counts = _plan(slices, chances, costs, model.round_s(num_guessing))
    wanted: dict[int, tuple[Sequence, int]] = {}
    for index, planned in enumerate(counts):
        sequence = slices[index].sequence
        if chances[index] and sequence.draft is not None and (count := sequence.draft.ration(planned)):
            wanted[index] = sequence, count
    if not wanted:
        return slices
    slices = list(slices)
    step_s = costs.estimate(_num_tokens(slices)) or 0.0
    for index, guesses in zip(wanted, model.guess(list(wanted.values()), step_s), strict=True):
        slices[index] = _with_drafts(slices[index], guesses)
    return slices


def _model_chances(s: Slice, model: Guesser) -> list[float]:
    state = s.sequence.draft
    if state is None or state.model is not model or not s.decodes or s.drafts:
        return []
    state.judge(s.sequence.tokens)
    return state.chances(_limit(s.sequence))


def _limit(sequence: Sequence) -> int:
    """Drafts of the next step, at most: one token is drawn in any case, and none beyond the end."""
    wanted = sequence.request.num_draft
    limit = MAX_DRAFT if wanted is None else min(wanted, MAX_DRAFT)
    room = sequence.context_length - sequence.position
    return int(min(limit, sequence.max_tokens - sequence.num_generated - 1, room - 1))


def _plan(
    slices: Items[Slice], chances: Items[Items[float]], costs: StepCosts, round_s: float = 0.0
) -> list[int]:
    return plan_drafts(chances, _num_tokens(slices), sum(s.decodes for s in slices), costs, round_s)


def _num_tokens(slices: Iterable[Slice]) -> int:
    return sum(s.num_computed for s in slices)


def _with_drafts(s: Slice, guesses: Items[int]) -> Slice:
    sequence = s.sequence
    # A stop token would be drawn without a guess, and there is nothing behind it.
    drafts = list(takewhile(lambda token: token not in sequence.stop_tokens, guesses))
    return s._replace(drafts=drafts) if sequence.table.grow(sequence.position + 1 + len(drafts)) else s
