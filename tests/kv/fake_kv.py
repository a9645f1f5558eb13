"""KV that says which token of which text it belongs to, in blocks that their pool hands out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from puna.kv import BLOCK_TOKENS, BlockPool, Budget, PrefixCache, SequenceTable
from tests.kv.fake_memory import FakeMemory

Value = tuple[object, int]
"""What a token's KV depends on (all tokens up to it, and the salt), and by how far its key was rotated."""


def value_of(tokens: Sequence[int], salt: str = "") -> Value:
    """KV of the last of `tokens`."""
    return (salt, *tokens), 0


@dataclass
class KvMemory(FakeMemory):
    """Keeps what was written to a block until the block's memory is released."""

    blocks: dict[int, list[Value | None]] = field(default_factory=dict)

    @property
    def backed_bytes(self) -> int:
        return len(self.blocks) * self.block_bytes

    def free(self, extents: Sequence[int]) -> None:
        super().free(extents)
        for extent in extents:
            for offset in range(self.extent_blocks):
                self.blocks.pop(extent * self.extent_blocks + offset, None)

    def write(self, block: int, slot: int, value: Value | None) -> None:
        self.blocks.setdefault(block, [None] * BLOCK_TOKENS)[slot] = value

    def read(self, block: int, slot: int) -> Value | None:
        return self.blocks[block][slot] if block in self.blocks else None


class FakeKv:
    """A pool with a prefix cache and memory to look into."""

    def __init__(
        self,
        num_blocks: int,
        budget: Budget | None = None,
        block_bytes: int = 64,
        extent_blocks: int = 1,
        waste_bytes: int = 0,
    ) -> None:
        self.memory = KvMemory(num_blocks, block_bytes, extent_blocks, waste_bytes)
        self.budget = budget or Budget(num_blocks * block_bytes)
        self.pool = BlockPool(self.memory, self.budget)
        self.cache = PrefixCache(self.pool)
        self.tables: list[SequenceTable] = []

    def table(self) -> SequenceTable:
        """An empty table, known as an owner from now on."""
        self.tables.append(SequenceTable(self.pool))
        return self.tables[-1]

    def release(self, table: SequenceTable) -> None:
        table.release()
        self.tables = [other for other in self.tables if other is not table]

    def compute(self, table: SequenceTable, tokens: Sequence[int], begin: int = 0, salt: str = "") -> None:
        """Writes the KV of tokens[begin:]; there is room for them."""
        for position in range(begin, len(tokens)):
            self.write(table, position, value_of(tokens[: position + 1], salt))

    def write(self, table: SequenceTable, position: int, value: Value | None) -> None:
        block, slot = table.blocks[position // BLOCK_TOKENS], position % BLOCK_TOKENS
        owners = sum(block in other.blocks for other in self.tables)
        assert owners == 1, f"write to block {block} of {owners} tables"
        assert not self.pool.is_shared(block), f"write to shared block {block}"
        assert self.cache.num_recorded(block) <= slot, f"write to recorded token {slot} of block {block}"
        self.memory.write(block, slot, value)

    def move(
        self, source: NDArray[np.int32], destination: NDArray[np.int32], begin: int, to: int, count: int
    ) -> None:
        """Is a MoveKv."""
        assert source.dtype == destination.dtype == np.int32
        for offset in range(count):
            at, new = begin + offset, to + offset
            value = self.memory.read(int(source[at // BLOCK_TOKENS]), at % BLOCK_TOKENS)
            assert value is not None, "KV of a token that was never computed, or is gone"
            content, rotation = value
            block = int(destination[new // BLOCK_TOKENS])
            assert not self.pool.is_shared(block), f"move to shared block {block}"
            self.memory.write(block, new % BLOCK_TOKENS, (content, rotation + to - begin))

    def values(self, table: SequenceTable, num_tokens: int) -> list[Value | None]:
        """What the table's first `num_tokens` tokens read."""
        return [
            self.memory.read(table.blocks[position // BLOCK_TOKENS], position % BLOCK_TOKENS)
            for position in range(num_tokens)
        ]

    def check(self) -> None:
        self.pool.check()
        self.cache.check()
        in_use = {block for table in self.tables for block in table.blocks}
        assert self.pool.num_used == len(in_use)
        assert all(table.array.tolist() == list(table.blocks) for table in self.tables)


def int32(tokens: Sequence[int]) -> NDArray[np.int32]:
    return np.array(tokens, dtype=np.int32)


def expected(tokens: Sequence[int], salt: str = "") -> list[Value]:
    """What a table whose sequence has these tokens must read."""
    return [value_of(tokens[: end + 1], salt) for end in range(len(tokens))]
