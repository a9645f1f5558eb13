"""Speculative decoding: drafts of sequences' next tokens are verified in the step of the latest ones.

A step with a sequence's latest token and k drafts behind it yields 1 to k + 1 tokens, the very ones that
single steps would have given. It pays if the drafts are right often enough for what the step takes longer.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence as Items
from itertools import takewhile

from puna._native import StepCosts, draft_from_text, plan_drafts
from puna.engine.scheduling.sequence import Sequence
from puna.engine.speculation.draft_state import Guesser
from puna.engine.steps.batch import Slice

MAX_DRAFT = 16
"""Drafts of one sequence in one step, at most."""


def add_drafts(slices: list[Slice], costs: StepCosts) -> list[Slice]:
    """The same step, with drafts behind the sequences' latest tokens where that pays.

    costs: of the step's model. Nobody is preempted for drafts: where blocks are short, there are none.
    """
    slices = _draft_from_text(slices, costs)
    states = [s.sequence.draft for s in slices if s.decodes]
    for model in dict.fromkeys(state.model for state in states if state is not None):
        slices = _draft_by_model(slices, costs, model)
    return slices


def _draft_from_text(slices: list[Slice], costs: StepCosts) -> list[Slice]:
    decodes = [i for i, s in enumerate(slices) if s.decodes]
    drafting = [(i, s, n) for i in decodes if (n := (s := slices[i].sequence).ngrams) is not None]
    if not drafting:
        return slices
    drafts = draft_from_text(
        [ngrams for _, _, ngrams in drafting],
        [sequence.tokens for _, sequence, _ in drafting],
        [_limit(sequence) for _, sequence, _ in drafting],
        # Otherwise its draft model does better.
        [0.0 if sequence.draft is None else sequence.draft.rate for _, sequence, _ in drafting],
        _num_tokens(slices),
        len(decodes),
        costs,
    )
    slices = list(slices)
    for (index, _, _), of_sequence in zip(drafting, drafts, strict=True):
        if of_sequence:
            slices[index] = _with_drafts(slices[index], of_sequence)
    return slices


def _draft_by_model(slices: list[Slice], costs: StepCosts, model: Guesser) -> list[Slice]:
    chances = [_model_chances(s, model) for s in slices]
    num_drafting = sum(map(bool, chances))
    num_decodes = sum(s.decodes for s in slices)
    counts = plan_drafts(chances, _num_tokens(slices), num_decodes, costs, model.round_s(num_drafting))
    wanted: dict[int, tuple[Sequence, int]] = {}
    for index, planned in enumerate(counts):
        sequence = slices[index].sequence
        if chances[index] and sequence.draft is not None and (count := sequence.draft.ration(planned)):
            wanted[index] = sequence, count
    if not wanted:
        return slices
    slices = list(slices)
    step_s = costs.estimate(_num_tokens(slices)) or 0.0
    for index, drafts in zip(wanted, model.guess(list(wanted.values()), step_s), strict=True):
        # A stop token would be drawn without a draft, and there is nothing behind it.
        stop_tokens = slices[index].sequence.stop_tokens
        own = list(takewhile(lambda token: token not in stop_tokens, drafts))  # noqa: B023
        slices[index] = _with_drafts(slices[index], own)
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


def _num_tokens(slices: Iterable[Slice]) -> int:
    return sum(s.num_computed for s in slices)


def _with_drafts(s: Slice, drafts: Items[int]) -> Slice:
    sequence = s.sequence
    return s._replace(drafts=drafts) if sequence.table.grow(sequence.position + 1 + len(drafts)) else s
