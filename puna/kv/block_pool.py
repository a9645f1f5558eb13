"""Who owns which KV block of a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NewType, Protocol

from puna.kv.budget import Budget

BlockId = NewType("BlockId", int)


class BlockMemory(Protocol):
    """What the pool needs of an arena."""

    @property
    def num_blocks(self) -> int: ...
    @property
    def block_bytes(self) -> int: ...
    def release(self, block_ids: Sequence[int]) -> None: ...
    def close(self) -> None: ...


class BlockPool:
    """Hands out the blocks of one arena, with reference counts, within a budget shared by all pools.

    A block is in use (references > 0), spare (free, but its memory is still counted), or has no memory.
    """

    def __init__(self, arena: BlockMemory, budget: Budget) -> None:
        self.block_bytes = arena.block_bytes
        self._arena = arena
        self._budget = budget
        # Last in, first out: the block freed last is the one most likely still in a processor cache.
        self._spare: list[BlockId] = []
        self._decommitted: list[BlockId] = []
        # Blocks from len(self._references) on were never handed out; the list grows as they are.
        self._references: list[int] = []
        budget.join(self)

    @property
    def num_used(self) -> int:
        return len(self._references) - len(self._spare) - len(self._decommitted)

    @property
    def num_committed(self) -> int:
        return len(self._references) - len(self._decommitted)

    @property
    def num_available(self) -> int:
        """Blocks that acquire() could hand out now."""
        fresh = min(
            self._budget.available_bytes(self) // self.block_bytes,
            self._arena.num_blocks - self.num_committed,
        )
        return len(self._spare) + fresh

    @property
    def reclaimable_bytes(self) -> int:
        return len(self._spare) * self.block_bytes

    def acquire(self, num_blocks: int) -> list[BlockId] | None:
        """Blocks with one reference each, contents undefined; None if there are not that many."""
        num_spare = min(num_blocks, len(self._spare))
        fresh = self._commit(num_blocks - num_spare)
        if fresh is None:
            return None
        split = len(self._spare) - num_spare
        blocks = self._spare[split:][::-1] + fresh
        del self._spare[split:]
        for block in blocks:
            assert self._references[block] == 0, f"block {block} handed out twice"
            self._references[block] = 1
        return blocks

    def retain(self, blocks: Sequence[BlockId]) -> None:
        """Adds a reference to blocks that are in use, for a second owner."""
        for block in blocks:
            assert self._references[block] > 0, f"retain of free block {block}"
            self._references[block] += 1

    def release(self, blocks: Sequence[BlockId]) -> None:
        """Takes a reference away; blocks without one are free."""
        for block in blocks:
            assert self._references[block] > 0, f"release of free block {block}"
            self._references[block] -= 1
            if self._references[block] == 0:
                self._spare.append(block)

    def trim(self) -> None:
        """Gives the memory of all spare blocks back to the system."""
        if not self._spare:
            return
        self._arena.release(self._spare)
        self._budget.release(self.reclaimable_bytes)
        self._decommitted += self._spare
        self._spare = []

    def close(self) -> None:
        """Gives everything back. Nothing may use a block any more."""
        assert self.num_used == 0, f"close with {self.num_used} blocks in use"
        self.trim()
        self._budget.leave(self)
        self._arena.close()

    def check(self) -> None:
        """Every block is in use, spare or without memory, and in exactly one of these states."""
        free = self._spare + self._decommitted
        assert len(set(free)) == len(free), "a block is free twice"
        assert all(self._references[block] == 0 for block in free), "a free block has references"
        assert sum(count > 0 for count in self._references) == self.num_used, "a block leaked"
        assert len(self._references) <= self._arena.num_blocks, "more blocks than the arena has"

    def _commit(self, num_blocks: int) -> list[BlockId] | None:
        """Blocks without memory, now counted in the budget."""
        if num_blocks > self._arena.num_blocks - self.num_committed:
            return None
        if not self._budget.commit(num_blocks * self.block_bytes, self):
            return None
        split = max(len(self._decommitted) - num_blocks, 0)
        blocks = self._decommitted[split:]
        del self._decommitted[split:]
        first_new = len(self._references)
        num_new = num_blocks - len(blocks)
        self._references += [0] * num_new
        return blocks + [BlockId(block) for block in range(first_new, first_new + num_new)]
