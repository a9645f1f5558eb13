"""Whatever users do in whatever order: each slot's KV is that of its inputs, and no block leaks."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from puna.kv.input_cache import Embedding, Input, InputCacheError, InputCacheSlot, ShiftError
from tests.kv.depth import machine_settings
from tests.kv.fake_kv import Value
from tests.kv.fake_slots import Slots

pytestmark = pytest.mark.native

NUM_CTX = 70
INPUTS = st.lists(st.sampled_from([1, 1, 2, Embedding(b"image", 2)]), min_size=1, max_size=8)
PROMPTS = st.builds(lambda start, end: [1] * start + end, st.integers(0, 60), INPUTS)


class InputCacheMachine(RuleBasedStateMachine):
    @initialize(
        multi_user=st.booleans(),
        num_slots=st.integers(1, 4),
        num_blocks=st.integers(5, 12),
        window=st.sampled_from([None, None, 2, 18, 50]),
        num_states=st.sampled_from([0, 0, 3, 8]),
    )
    def begin(
        self, multi_user: bool, num_slots: int, num_blocks: int, window: int | None, num_states: int
    ) -> None:
        self.slots = Slots(
            num_slots,
            NUM_CTX,
            multi_user=multi_user,
            num_blocks=num_blocks,
            window=window,
            num_states=num_states,
        )
        self.may_be_lost = window is not None or num_states > 0
        self.cache = self.slots.cache
        self.values: dict[int, list[Value | None]] = {slot.id: [] for slot in self.cache.slots}

    @rule(prompt=PROMPTS, cache_prompt=st.integers(0, 4))
    def load(self, prompt: list[Input], cache_prompt: int) -> None:
        held = [(list(slot.inputs), self.values[slot.id]) for slot in self.cache.slots]
        busy = [slot.in_use for slot in self.cache.slots]
        try:
            slot, left = self.cache.load_cache_slot(prompt, cache_prompt > 0)
        except InputCacheError:
            assert all(busy)
            return
        assert not busy[slot.id]
        assert left
        assert [*slot.inputs, *left] == prompt
        reused = len(slot.inputs)
        assert reused == 0 or cache_prompt
        now = self.slots.values(slot)
        assert any(i[:reused] == prompt[:reused] and values[:reused] == now for i, values in held)
        self.values[slot.id] = now
        if not self.compute(slot, left):
            self.cache.release_slot(slot, slot.inputs)

    def compute(self, slot: InputCacheSlot, inputs: list[Input]) -> bool:
        """False: too little memory, even with all idle slots emptied."""
        while not slot.table.grow(len(slot.inputs) + len(inputs)):
            idle = [other for other in self.cache.slots if other.table.num_blocks and not other.in_use]
            if not idle:
                return False
            self.cache.empty_slot(idle[0])
            self.values[idle[0].id] = []
        self.slots.compute(slot, inputs)
        self.values[slot.id] = self.slots.values(slot)
        return True

    def busy(self) -> list[InputCacheSlot]:
        return [slot for slot in self.cache.slots if slot.in_use] if hasattr(self, "cache") else []

    @precondition(lambda self: self.busy())
    @rule(data=st.data(), inputs=INPUTS, keep=st.integers(0, 20))
    def go_on(self, data: st.DataObject, inputs: list[Input], keep: int) -> None:
        slot = data.draw(st.sampled_from(self.busy()))
        if len(slot.inputs) + len(inputs) > NUM_CTX:
            self.shift(slot, keep)
        if len(slot.inputs) + len(inputs) <= NUM_CTX:
            self.compute(slot, inputs)

    def shift(self, slot: InputCacheSlot, keep: int) -> None:
        discard = self.cache.shift_discard(slot.inputs, keep)
        left = slot.inputs[:keep] + slot.inputs[keep + discard :]
        values = self.values[slot.id]
        moved = [(value[0], value[1] - discard) for value in values[keep + discard :] if value]
        self.values[slot.id] = values[:keep] + moved
        try:
            self.cache.shift_cache_slot(slot, keep)
        except ShiftError as error:
            returned = error.inputs
            self.values[slot.id] = []
        else:
            returned = slot.inputs
        assert returned == left

    @precondition(lambda self: self.busy())
    @rule(data=st.data(), num_cut=st.integers(0, 5))
    def finish(self, data: st.DataObject, num_cut: int) -> None:
        """A stop string was cut from the answer, drafts were computed in vain."""
        slot = data.draw(st.sampled_from(self.busy()))
        wanted = slot.inputs[: max(len(slot.inputs) - num_cut, 0)]
        slot.table.grow(len(slot.inputs) + 3)
        self.cache.release_slot(slot, wanted)
        assert slot.inputs == wanted[: len(slot.inputs)]
        sizes = [len(wanted), len(wanted) - len(wanted) % 16]
        assert len(slot.inputs) in ([*sizes, 0] if self.may_be_lost else sizes)
        self.values[slot.id] = self.values[slot.id][: len(slot.inputs)]

    @invariant()
    def everyone_has_their_own(self) -> None:
        if hasattr(self, "cache"):
            self.slots.sync()
            self.slots.kv.check()
            for slot in self.cache.slots:
                assert self.slots.values(slot) == self.values[slot.id]
                self.slots.kv.require(slot.table, self.values[slot.id])
                assert len(slot.inputs) <= NUM_CTX

    def teardown(self) -> None:
        if hasattr(self, "cache"):
            for slot in self.cache.slots:
                self.cache.empty_slot(slot)
            self.slots.kv.kv.close()
            assert self.slots.kv.budget.committed_bytes == 0


TestInputCache = InputCacheMachine.TestCase
TestInputCache.settings = machine_settings(80, 40)
