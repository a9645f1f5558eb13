"""Slots and someone who computes what they hold."""

from __future__ import annotations

import time
from collections.abc import Sequence

from puna.kv.input_cache import Input, InputCache, InputCacheSlot
from tests.kv.fake_kv import FakeKv, Shape, Value


class Slots:
    """An input cache whose KV can be looked into. The KV of an input is what it and those before it are."""

    def __init__(
        self,
        num_slots: int,
        num_ctx: int = 1000,
        *,
        multi_user: bool,
        num_blocks: int = 64,
        window: int | None = None,
        num_states: int = 0,
        **model: object,
    ) -> None:
        """window: of a second group of layers; num_states: blocks of a last group, of recurrent layers."""
        shapes = [Shape(num_blocks)]
        if window is not None:
            shapes.append(Shape(num_blocks, window=window))
        if num_states:
            shapes.append(Shape(num_states, is_state=True))
        self.kv = FakeKv(shapes=shapes)
        self.cache = InputCache(
            self.kv.kv,
            kv_size=num_ctx * num_slots,
            num_slots=num_slots,
            multi_user=multi_user,
            **model,
        )

    def compute(self, slot: InputCacheSlot, inputs: Sequence[Input]) -> None:
        """What the engine does: grows the table, computes, adds to the slot's inputs."""
        self.sync()
        begin = len(slot.inputs)
        assert slot.table.grow(begin + len(inputs), begin)
        slot.inputs += inputs
        values: list[Value] = [(tuple(slot.inputs[: end + 1]), 0) for end in range(len(slot.inputs))]
        self.kv.step(slot.table, values, begin)
        slot.table.slide(len(slot.inputs))

    def fill(self, slot_id: int, inputs: list[Input], age: float = float("inf"), busy: bool = False) -> None:
        slot = self.cache.slots[slot_id]
        self.compute(slot, inputs)
        slot.in_use, slot.last_used = busy, time.monotonic() - age

    def sync(self) -> None:
        """A fork is a new table: the owners are always those of the slots."""
        self.kv.tables = [slot.table for slot in self.cache.slots]

    def check(self) -> None:
        """Every slot's KV is that of its inputs, which nothing moved."""
        self.sync()
        self.kv.check()
        for slot in self.cache.slots:
            expected = [(tuple(slot.inputs[: end + 1]), 0) for end in range(len(slot.inputs))]
            self.kv.require(slot.table, expected)

    def values(self, slot: InputCacheSlot) -> list[Value | None]:
        return self.kv.values(slot.table, len(slot.inputs))

    @property
    def contents(self) -> list[list[Input]]:
        return [slot.inputs for slot in self.cache.slots]
