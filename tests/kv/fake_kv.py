"""KV that says which token of which text it belongs to, in blocks that a ModelKv hands out."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from puna.backends.base import KvGroup
from puna.kv import BLOCK_TOKENS, Budget, ModelKv, SequenceTable, gather_tables
from tests.kv.fake_memory import FakeDevice, FakeMemory

Value = tuple[object, int]
"""What a token's KV depends on (all tokens up to it, and the salt), and by how far its key was rotated."""


def value_of(tokens: Sequence[int], salt: str = "") -> Value:
    """KV of the last of `tokens`."""
    return (salt, *tokens), 0


class Shape(NamedTuple):
    """A group of layers, and how its memory is divided."""

    num_blocks: int = 64
    block_bytes: int = 64
    extent_blocks: int = 1
    waste_bytes: int = 0
    window: int | None = None
    is_state: bool = False


@dataclass
class KvMemory(FakeMemory):
    """Keeps what was written to a block until the block's memory is released."""

    blocks: dict[int, list[Value | None]] = field(default_factory=dict)
    kv: Callable[[], FakeKv | None] = lambda: None

    @property
    def backed_bytes(self) -> int:
        return len(self.blocks) * self.block_bytes

    def free(self, extents: Sequence[int]) -> None:
        if kv := self.kv():
            kv.mark_in_use()
        super().free(extents)
        for extent in extents:
            for offset in range(self.extent_blocks):
                self.blocks.pop(extent * self.extent_blocks + offset, None)

    def close(self) -> None:
        if kv := self.kv():
            kv.mark_in_use()
        super().close()
        self.blocks.clear()

    def put(self, block: int, slot: int, value: Value | None) -> None:
        assert block // self.extent_blocks in self.allocated, "write to memory that is not there"
        self.blocks.setdefault(block, [None] * BLOCK_TOKENS)[slot] = value

    def get(self, block: int, slot: int) -> Value | None:
        return self.blocks[block][slot] if block in self.blocks else None

    def move(
        self, source: NDArray[np.int32], destination: NDArray[np.int32], begin: int, to: int, count: int
    ) -> None:
        kv = self.kv()
        assert kv is not None
        assert source.dtype == destination.dtype == np.int32
        group = kv.memories.index(self)
        for offset in range(count):
            at, new = begin + offset, to + offset
            value = self.get(int(source[at // BLOCK_TOKENS]), at % BLOCK_TOKENS)
            assert value is not None, "KV of a token that was never computed, or is gone"
            content, rotation = value
            block = int(destination[new // BLOCK_TOKENS])
            assert kv.pool(group).num_references(block) == 1, f"move to shared block {block}"
            self.put(block, new % BLOCK_TOKENS, (content, rotation + to - begin))


class FakeKv:
    """A model's KV with memory to look into: one group, or those of `shapes`."""

    def __init__(
        self,
        num_blocks: int = 64,
        budget: Budget | None = None,
        block_bytes: int = 64,
        extent_blocks: int = 1,
        waste_bytes: int = 0,
        *,
        shapes: Sequence[Shape] = (),
        device: FakeDevice | None = None,
    ) -> None:
        shapes = shapes or [Shape(num_blocks, block_bytes, extent_blocks, waste_bytes)]
        device = device or FakeDevice()
        self.memories = [KvMemory(*shape[:4], device=device) for shape in shapes]
        for memory in self.memories:
            memory.kv = weakref.ref(self)  # native code holds memories, and no collector sees that
        total_bytes = sum(memory.num_blocks * memory.extent_bytes for memory in self.memories)
        self.budget = budget or Budget(total_bytes)
        groups = [
            KvGroup(num_layers=1, block_bytes=shape.block_bytes, window=shape.window, is_state=shape.is_state)
            for shape in shapes
        ]
        self.windows = [shape.window for shape in shapes if not shape.is_state]
        self.states = self.memories[-1] if shapes[-1].is_state else None
        self.kv = ModelKv(groups, self.memories, self.budget)
        self.tree = self.kv.tree
        self.tables: list[SequenceTable] = []

    @property
    def memory(self) -> KvMemory:
        return self.memories[0]

    def pool(self, group: int = 0):
        return self.kv.groups[group].pool

    def table(self, *, keeps_all: bool = False) -> SequenceTable:
        """An empty table, known as an owner from now on."""
        self.tables.append(self.kv.new_table(keeps_all=keeps_all))
        return self.tables[-1]

    def release(self, table: SequenceTable) -> None:
        table.release()
        self.tables = [other for other in self.tables if other is not table]

    def compute(self, table: SequenceTable, tokens: Sequence[int], begin: int = 0, salt: str = "") -> None:
        """Writes the KV of tokens[begin:]; there is room for them."""
        for position in range(begin, len(tokens)):
            self.write(table, position, value_of(tokens[: position + 1], salt))

    def write(self, table: SequenceTable, position: int, value: Value | None) -> None:
        for group, array in enumerate(table.arrays()):
            index, slot = position // BLOCK_TOKENS, position % BLOCK_TOKENS
            assert index >= table.first_held(group), "write to what slid out of a window"
            block = int(array[index])
            owners = sum(block in other.blocks(group) for other in self.tables)
            assert owners == 1, f"write to block {block} of {owners} tables"
            assert self.pool(group).num_references(block) == 1, f"write to shared block {block}"
            recorded = self.tree.num_recorded(block, group)
            assert recorded <= slot, f"write to recorded token {slot} of block {block}"
            self.memories[group].put(block, slot, value)

    def step(self, table: SequenceTable, values: Sequence[Value], begin: int) -> None:
        """Computes values[begin:] and the state behind them, where grow() has made room."""
        for position in range(begin, len(values)):
            self.write(table, position, values[position])
        if self.states is None:
            return
        read = gather_tables([table])[-1][0, 0]
        self.require_state(table, values[:begin])
        assert (read < 0) == (begin == 0)
        self.fill_state(table, values)

    def fill_state(self, table: SequenceTable, values: Sequence[Value]) -> None:
        """Writes the state behind these, where grow() has made room."""
        assert self.states is not None
        written = int(gather_tables([table])[-1][0, 1])
        pool = self.pool(len(self.windows))
        assert pool.num_references(written) == 1, f"write to shared state {written}"
        assert self.tree.num_recorded(written, len(self.windows)) == 0, f"write to snapshot {written}"
        self.states.put(written, 0, values[-1])
        table.stepped(len(values))

    def require_state(self, table: SequenceTable, values: Sequence[Value]) -> None:
        """The table's state is the one behind these tokens."""
        if self.states is None:
            return
        assert table.state_position == len(values)
        held = None if table.state is None else self.states.get(table.state, 0)
        assert held == (values[-1] if values else None)

    def fill(self, table: SequenceTable, values: Sequence[Value], begin: int) -> None:
        """Writes values[begin:] where the table holds blocks for them, as if they came from a disk."""
        for group, array in enumerate(table.arrays()):
            for position in range(max(begin, table.first_held(group) * BLOCK_TOKENS), len(values)):
                block = int(array[position // BLOCK_TOKENS])
                self.memories[group].put(block, position % BLOCK_TOKENS, values[position])

    def values(self, table: SequenceTable, num_tokens: int, group: int = 0) -> list[Value | None]:
        """What a group of the table's first `num_tokens` tokens reads: those that the next token sees."""
        array = table.arrays()[group]
        first = self.first_seen(table, num_tokens, group)
        assert first >= table.first_held(group) * BLOCK_TOKENS or first == num_tokens, "it slid out"
        return [
            self.memories[group].get(int(array[position // BLOCK_TOKENS]), position % BLOCK_TOKENS)
            for position in range(first, num_tokens)
        ]

    def first_seen(self, table: SequenceTable, num_tokens: int, group: int) -> int:
        window = self.windows[group]
        return 0 if window is None or table.keeps_all else max(num_tokens - window + 1, 0)

    def require(self, table: SequenceTable, values: Sequence[Value]) -> None:
        """The table reads these, in every group, as far as the next token sees, and the state behind them."""
        self.require_state(table, values)
        for group in range(len(self.windows)):
            first = self.first_seen(table, len(values), group)
            assert self.values(table, len(values), group) == list(values[first:])

    def check(self) -> None:
        self.kv.check()
        for group in range(len(self.memories)):
            references = self.pool(group).references()
            held = [block for table in self.tables for block in table.blocks(group)]
            assert {block: held.count(block) for block in held} == references
            if group == len(self.windows):
                continue
            arrays = [table.arrays()[group] for table in self.tables]
            for array, table in zip(arrays, self.tables, strict=True):
                first = table.first_held(group)
                assert array.tolist() == [0] * first + table.blocks(group)

    def mark_in_use(self) -> None:
        for group, memory in enumerate(self.memories):
            memory.in_use = {block for table in self.tables for block in table.blocks(group)}


def int32(tokens: Sequence[int]) -> NDArray[np.int32]:
    return np.array(tokens, dtype=np.int32)


def expected(tokens: Sequence[int], salt: str = "") -> list[Value]:
    """What a table whose sequence has these tokens must read."""
    return [value_of(tokens[: end + 1], salt) for end in range(len(tokens))]
