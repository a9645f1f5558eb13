"""Speculative decoding: drafts of sequences' next tokens are verified in the step of the latest ones.

A step with a sequence's latest token and k drafts behind it yields 1 to k + 1 tokens, the very ones that
single steps would have given. It pays if the drafts are right often enough for what the step takes longer.
"""

from __future__ import annotations

from collections.abc import Sequence as Items

from puna._native import StepCosts, draft_from_text, plan_drafts
from puna.engine.sequences.batch import Slice
from puna.engine.sequences.draft_state import Drafter, DraftSource
from puna.engine.sequences.sequence import MAX_DRAFT, Sequence

MOST_REPLAYED = 64
"""Drafts of one step, of a model with recurrent layers: for each, the device keeps what it may have to take
through the state once more, and counts memory for so many."""


def add_drafts(slices: Items[Slice], costs: StepCosts, *, has_states: bool) -> None:
    """Puts drafts behind the sequences' latest tokens where that pays.

    costs: of the step's model; has_states: whether it has recurrent layers. Nobody is preempted for drafts:
    where blocks are short, there are none.
    """
    decoding = [s for s in slices if s.decodes]
    if not decoding:
        return
    num_tokens = sum(s.num_tokens for s in slices)
    room = MOST_REPLAYED if has_states else MAX_DRAFT * len(decoding)
    num_forced = _draft_forced(decoding, num_tokens, costs, room)
    _draft_from_text(decoding, num_tokens + num_forced, costs, room - num_forced)
    for drafter in {source.drafter: None for s in decoding if (source := s.sequence.drafts) is not None}:
        num_drafts = sum(len(s.drafts) for s in decoding)
        _draft_with(decoding, num_tokens + num_drafts, costs, drafter, room - num_drafts)


def _draft_forced(decoding: Items[Slice], num_tokens: int, costs: StepCosts, room: int) -> int:
    """What grammars leave no choice about: these drafts are right, unless a token is left out. Requests that
    want no drafts have them all the same: nothing is guessed. room: for so many drafts. Returns how many.
    """
    held = [(s, s.sequence.grammar) for s in decoding if s.sequence.grammar is not None]
    if not held:
        return 0
    forced = [grammar.forced()[: _limit(s.sequence, MAX_DRAFT)] for s, grammar in held]
    if not any(forced):
        return 0
    left = room
    counts = plan_drafts([[1.0] * len(tokens) for tokens in forced], num_tokens, len(decoding), costs)
    for (s, _), tokens, count in zip(held, forced, counts, strict=True):
        if drafts := tokens[: min(count, left)]:
            _add(s, drafts)
            left -= len(s.drafts)
    return room - left


def _draft_from_text(decoding: Items[Slice], num_tokens: int, costs: StepCosts, room: int) -> None:
    """room: for so many drafts."""
    drafting = [(s, ngrams) for s in decoding if (ngrams := s.sequence.ngrams) is not None and not s.drafts]
    if not drafting:
        return
    sequences = [s.sequence for s, _ in drafting]
    found = draft_from_text(
        [ngrams for _, ngrams in drafting],
        [sequence.history for sequence in sequences],
        [sequence.num_tokens for sequence in sequences],
        [_limit(sequence, sequence.most_drafts) for sequence in sequences],
        # Otherwise its draft model, or the model's head, does better.
        [0.0 if sequence.drafts is None else sequence.drafts.rate for sequence in sequences],
        num_tokens,
        len(decoding),
        costs,
    )
    for (s, _), drafts in zip(drafting, found, strict=True):
        if drafts and room > 0:
            _add(s, _admitted(s, drafts[:room]))
            room -= len(s.drafts)


def _draft_with(
    decoding: Items[Slice], num_tokens: int, costs: StepCosts, drafter: Drafter, room: int
) -> None:
    """room: for so many drafts."""
    chances = [_chances(s, drafter) for s in decoding]
    num_drafting = sum(map(bool, chances))
    counts = plan_drafts(chances, num_tokens, len(decoding), costs, drafter.round_s(num_drafting))
    wanted = []
    for s, planned, of_sequence in zip(decoding, counts, chances, strict=True):
        if of_sequence and (count := min(_source(s).ration(planned), room)):
            wanted.append((s, count))
            room -= count
    if not wanted:
        return
    step_s = costs.estimate(num_tokens) or 0.0
    found = drafter.draft([(s.sequence, count) for s, count in wanted], step_s)
    for (s, _), drafts in zip(wanted, found, strict=True):
        # A stop token would be drawn without a draft, and there is nothing behind it.
        stop_tokens = s.sequence.request.stop_tokens
        end = next((i for i, token in enumerate(drafts) if token in stop_tokens), len(drafts))
        _add(s, _admitted(s, drafts[:end]))


def _chances(s: Slice, drafter: Drafter) -> list[float]:
    source = s.sequence.drafts
    if source is None or source.drafter is not drafter or s.drafts:
        return []
    source.judge(s.sequence.tokens)
    return source.chances(_limit(s.sequence, s.sequence.most_drafts))


def _source(s: Slice) -> DraftSource:
    assert s.sequence.drafts is not None, "a sequence for which nobody drafts"
    return s.sequence.drafts


def _admitted(s: Slice, drafts: Items[int]) -> Items[int]:
    """Up to the first that the reply's grammar forbids."""
    grammar = s.sequence.grammar
    return drafts if grammar is None else drafts[: grammar.num_admitted(drafts)]


def _limit(sequence: Sequence, most: int) -> int:
    """Drafts of the next step, `most` of them at most: one token is drawn in any case, and none beyond the
    end.
    """
    limit, left = most, sequence.end - sequence.num_tokens - 1
    room = sequence.context_length - sequence.position - 1
    if left < limit:
        limit = left
    return room if room < limit else limit


def _add(s: Slice, drafts: Items[int]) -> None:
    if drafts and s.sequence.table.grow(s.sequence.position + 1 + len(drafts)):
        s.drafts = drafts
