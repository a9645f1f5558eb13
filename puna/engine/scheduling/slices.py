"""What each running sequence of a model computes in its next step."""

from __future__ import annotations

from collections.abc import Hashable

from puna.engine.model import Model
from puna.engine.scheduling.contention import Contention, half_chunk, needed_bytes
from puna.engine.scheduling.lifecycle import Lifecycle
from puna.engine.scheduling.prefills import (
    next_chunk,
    passing_share,
    prefill_budget,
    shorter_prompts,
    text_budget,
    whole_texts,
)
from puna.engine.sequences.batch import Slice
from puna.engine.sequences.sequence import Sequence
from puna.engine.settings import EngineSettings


class Slices:
    """Their tables grow as they need; one that cannot grow takes the blocks of the last in order."""

    def __init__(self, settings: EngineSettings, lifecycle: Lifecycle, contention: Contention) -> None:
        self._settings = settings
        self._lifecycle = lifecycle
        self._contention = contention
        self._models = lifecycle.models

    def of(self, model: Model) -> list[Slice]:
        """Of those that run then: some are preempted for others."""
        if model.device.info.is_encoder:
            return self._texts(model)
        slices = [s for stream in self._streams(model) if (s := self._decode_slice(model, stream))]
        slices += self._prefills(model, len(slices))
        return [s for s in slices if s.sequence.is_running]  # the others were preempted for the later slices

    def _streams(self, model: Model) -> list[Sequence]:
        """Those that need one token, or as many of them as a step takes beside a prompt, if there is one."""
        streams = [s for s in model.running if s.num_pending == 1 and s.num_computable]
        limit = max(self._settings.max_batch - (len(streams) < len(model.running)), 1)
        if len(streams) <= limit:
            return streams
        first = model.turn % len(streams)
        model.turn = first + limit
        return (streams[first:] + streams[:first])[:limit]

    def _prefills(self, model: Model, num_decodes: int) -> list[Slice]:
        """The first prompt in order has at least half of what a step takes, shorter ones the other half."""
        prompts = [s for s in model.running if s.num_pending > 1 and s.num_computable]
        if not prompts:
            return []
        budget = prefill_budget(model, self._models.values(), self._settings, num_decodes)
        most = self._settings.max_batch - num_decodes
        first, shorter = prompts[0], shorter_prompts(prompts)
        share = passing_share(model, shorter, budget, most)
        others = [*shorter, *(s for s in prompts[1:] if s not in shorter)]
        claimed: set[Hashable] = set()
        slices: list[Slice] = []
        for sequence in others if share == budget else [first, *others]:
            if budget <= 0 or len(slices) == most:
                break
            own = budget - share if sequence is first else budget
            if s := self._prefill_slice(model, sequence, own, claimed):
                slices.append(s)
                budget -= s.num_tokens
        if share and budget > 0:
            self._use_rest(model, first, budget, most, claimed, slices)
        return slices

    def _texts(self, model: Model) -> list[Slice]:
        """Of an encoder: whole, since nothing is kept from step to step but of one that was suspended."""
        if model.suspended is not None and model.suspended.is_wanted:
            return model.suspended.slices
        model.suspended = None
        texts = [s for s in model.running if s.num_computable]
        if len(texts) > 1:
            budget = text_budget(model, self._models.values(), self._settings)
            texts = whole_texts(texts, budget, self._settings.max_batch)
        return [s for text in texts if (s := self._slice(model, text, text.num_pending))]

    def _use_rest(
        self,
        model: Model,
        first: Sequence,
        budget: int,
        most: int,
        claimed: set[Hashable],
        slices: list[Slice],
    ) -> None:
        """Gives the first prompt the tokens that shorter ones, waiting for a shared part, have left."""
        if slices and slices[0].sequence is first:
            if s := self._slice(model, first, next_chunk(first, slices[0].num_tokens + budget)):
                slices[0] = s
        elif len(slices) < most and (s := self._prefill_slice(model, first, budget, claimed)):
            slices.append(s)

    def _decode_slice(self, model: Model, sequence: Sequence) -> Slice | None:
        if not sequence.is_running:
            return None
        return Slice(sequence, 1) if sequence.fits_block else self._slice(model, sequence, 1)

    def _prefill_slice(
        self, model: Model, sequence: Sequence, budget: int, claimed: set[Hashable]
    ) -> Slice | None:
        try:
            if not sequence.is_running or not model.policy.catch_up(sequence, claimed):
                return None
            model.policy.reuse_part(sequence)
        except Exception as error:  # is its own
            self._lifecycle.fail(model, sequence, error)
            return None
        return self._slice(model, sequence, next_chunk(sequence, budget))

    def _slice(self, model: Model, sequence: Sequence, num_tokens: int) -> Slice | None:
        """None: there is no room for it, and it does not run any more."""
        try:
            if model.kv.has_windows and num_tokens > 1:
                num_tokens = min(num_tokens, self._contention.most_at_once(model, sequence))
            num_tokens = self._make_room(model, sequence, num_tokens)
        except Exception as error:  # is its own
            self._lifecycle.fail(model, sequence, error)
            return None
        return Slice(sequence, num_tokens) if num_tokens else None

    def _make_room(self, model: Model, sequence: Sequence, num_tokens: int) -> int:
        """Grows the table for the next tokens, at the cost of later sequences, or for fewer of them where
        layers have windows. Returns how many; 0: it no longer runs.
        """
        while not _fits(model, sequence, num_tokens):
            length = min(sequence.position + num_tokens, sequence.context_length)
            if self._contention.is_infeasible(model, sequence, length):
                self._lifecycle.give_up(model, sequence, length)
                return 0
            if self._contention.give_way():
                continue
            if model.kv.has_windows and (fewer := half_chunk(sequence, num_tokens)) < num_tokens:
                num_tokens = fewer
                continue
            missing = sequence.table.missing_bytes(sequence.position + num_tokens)
            is_guaranteed = model.kv.is_guaranteed(missing)
            victim = self._contention.victim(model, sequence, is_guaranteed=is_guaranteed)
            assert victim is not None, "a running sequence could at least stop itself"
            is_alone = victim is sequence and model.kv.is_all_held_by(sequence.table)
            has_all = is_alone and not model.kv.is_too_coarse  # or there is more for it in a finer one
            if has_all and not self._contention.may_get_more:
                self._lifecycle.give_up(model, sequence, length)
                return 0
            self._lifecycle.preempt(self._models[victim.model_id], victim)
            if has_all:
                missing = needed_bytes(sequence) - model.kv.available_bytes
                self._contention.found_no_room(model, sequence, missing)
            if victim is sequence:
                return 0
        return num_tokens


def _fits(model: Model, sequence: Sequence, num_tokens: int) -> bool:
    """Whether its table has room for the next tokens now."""
    if sequence.position == sequence.context_length:
        if not model.policy.shift(sequence):
            return False
        sequence.num_shifts += 1
        if sequence.head is not None:
            sequence.head.state.forget()  # of a token at a position that is another's now
        sequence.record.shifted(sequence.num_discard)
    return sequence.table.grow(sequence.position + num_tokens)
