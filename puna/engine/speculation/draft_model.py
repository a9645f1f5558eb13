"""A small model that drafts what a larger one with the same vocabulary will say."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Items

import numpy as np

from puna._native import NativeError, Sampler, StepCosts
from puna.backends.base import DeviceModel, DeviceOutOfMemory
from puna.engine.request import SamplingParams
from puna.engine.sequences.batch import Part, batch_of, num_threads
from puna.engine.sequences.draft_state import DraftState
from puna.engine.sequences.samplers import new_sampler
from puna.engine.sequences.sequence import Sequence
from puna.kv.model_kv import ModelKv

_MOST_TOKENS = 256  # of sequences that are behind, in one step
_GREEDY = SamplingParams(temperature=0, repeat_last_n=0, seed=0)
_FEWEST_TOKENS = 4  # the same, of each: what a step brings, and a little more


class DraftModel:
    """A resident model, in its part as a draft model; it may have requests of its own at the same time.

    It computes the sequences that it drafts for in its own KV memory, in tables of their own.
    """

    def __init__(
        self,
        device: DeviceModel,
        costs: StepCosts,
        clock: Callable[[], float],
    ) -> None:
        """costs: of the model's steps, which this learns from, too."""
        self.kv: ModelKv | None = None
        """The model's; None while it sleeps."""
        self._device = device
        self._costs = costs
        self._clock = clock
        self._greedy: list[Sampler] = []

    @property
    def vocab_size(self) -> int:
        return self._device.info.vocab_size

    def new_state(self) -> DraftState:
        """For a sequence of another model."""
        return DraftState(self, self._kv.new_table())

    @property
    def _kv(self) -> ModelKv:
        assert self.kv is not None, "drafts of a model that sleeps"
        return self.kv

    def round_s(self, num_sequences: int) -> float:
        """Seconds for one more draft of each; 0 while that is not known."""
        return self._costs.estimate(num_sequences) or 0.0

    def draft(self, wanted: Items[tuple[Sequence, int]], step_s: float) -> list[list[int]]:
        """So many of the likeliest next tokens for each sequence, whose state is this model's.

        None where blocks are short or the context is full, and while much of a sequence is still to be
        computed: catching up takes about step_s seconds of a step.
        """
        try:
            return self._draft(wanted, step_s)
        except (NativeError, DeviceOutOfMemory, MemoryError):
            for sequence, _ in wanted:
                _state(sequence).give_up()
            return [[] for _ in wanted]

    def _draft(self, wanted: Items[tuple[Sequence, int]], step_s: float) -> list[list[int]]:
        threads = num_threads([sequence for sequence, _ in wanted])
        drafts = self._first_drafts(wanted, step_s, threads)
        for depth in range(1, max(count for _, count in wanted)):
            going = [
                (_state(sequence), len(sequence.tokens) + depth - 1, of_sequence)
                for (sequence, count), of_sequence in zip(wanted, drafts, strict=True)
                if of_sequence and count > depth
            ]
            if not going:
                break
            parts = [
                Part(np.array(of_sequence[-1:], np.int32), 0, 1, position, True, (), state.table)
                for state, position, of_sequence in going
            ]
            for token, (_, _, of_sequence) in zip(self._run(parts, threads), going, strict=True):
                of_sequence.append(token)
        for (sequence, _), of_sequence in zip(wanted, drafts, strict=True):
            if of_sequence:
                _state(sequence).drafted(len(sequence.tokens), of_sequence)
        return drafts

    def _first_drafts(
        self, wanted: Items[tuple[Sequence, int]], step_s: float, threads: int | None
    ) -> list[list[int]]:
        """Computes what is pending, or as much as there is time for; a draft for those with no rest."""
        budget = max(self._budget(step_s), _FEWEST_TOKENS * len(wanted))
        parts: list[Part] = []
        caught_up = []
        for sequence, count in wanted:
            part = self._pending(sequence, count, budget)
            if part is not None:
                parts.append(part)
                budget -= part.num_tokens
            caught_up.append(part is not None and part.draws)
        tokens = iter(self._run(parts, threads) if parts else [])
        return [[next(tokens)] if is_ready else [] for is_ready in caught_up]

    def _pending(self, sequence: Sequence, count: int, budget: int) -> Part | None:
        state, tokens = _state(sequence), sequence.tokens
        begin = state.num_computed
        num_tokens = min(len(tokens) - begin, budget)
        is_last = begin + num_tokens == len(tokens)
        needed = len(tokens) + count - 1 if is_last else begin + num_tokens
        if num_tokens == 0 or needed > self._device.info.context_length:
            return None
        if state.table.num_blocks == 0:  # the model may have got other memory since
            state.table = self._kv.new_table()
        state.table.slide(begin)
        if not state.table.grow(needed):
            state.give_up()
            return None
        if not is_last:
            state.drafted(begin + num_tokens, [])
        return Part(tokens, begin, num_tokens, begin, is_last, (), state.table)

    def _budget(self, step_s: float) -> int:
        """Tokens that take no longer than a step."""
        num_tokens = _MOST_TOKENS
        while num_tokens and (self._costs.estimate(num_tokens) or 0.0) > step_s:
            num_tokens //= 2
        return num_tokens

    def _run(self, parts: Items[Part], threads: int | None) -> list[int]:
        """The likeliest token for each row."""
        start_s = self._clock()
        num_rows = sum(part.draws for part in parts)
        self._greedy += [new_sampler(_GREEDY) for _ in range(num_rows - len(self._greedy))]
        memory = self._kv.memories
        result = self._device.step(batch_of(parts, threads), memory, self._greedy[:num_rows]).samples
        if result.errors:
            raise NativeError("the draft model gives no numbers")
        tokens: list[int] = result.tokens.tolist()
        self._costs.observe(sum(part.num_tokens for part in parts), self._clock() - start_s)
        return tokens


def _state(sequence: Sequence) -> DraftState:
    assert sequence.draft is not None, "a sequence without a draft model"
    return sequence.draft
