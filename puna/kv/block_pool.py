"""Who owns which KV block of a model."""

from __future__ import annotations

from collections import OrderedDict
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


class ContentIndex(Protocol):
    """Who knows what a block holds: the prefix cache."""

    def num_recorded(self, block: BlockId) -> int:
        """Tokens at the start of the block that can be found; 0: nobody will look for this block."""

    def forget(self, block: BlockId) -> None:
        """Makes the block unfindable, and what builds on it; tells the pool so by uncache()."""


class BlockPool:
    """Hands out the blocks of one arena, with reference counts, within a budget shared by all pools.

    A block is in use (references > 0), cached (free, but `cache` knows its content), spare (free, but its
    memory is still counted), or has no memory. Cached blocks are evicted in the order in which they were
    released, over all pools of the budget; so whoever releases the last block of a sequence first keeps
    the beginnings for longest, and lets no block outlive one that it builds on.
    """

    def __init__(self, arena: BlockMemory, budget: Budget) -> None:
        self.block_bytes = arena.block_bytes
        self.cache: ContentIndex | None = None
        self._arena = arena
        self._budget = budget
        # When each was released, first to last.
        self._cached: OrderedDict[BlockId, int] = OrderedDict()
        # Last in, first out: the block freed last is the one most likely still in a processor cache.
        self._spare: list[BlockId] = []
        self._decommitted: list[BlockId] = []
        # Blocks from len(self._references) on were never handed out; the list grows as they are.
        self._references: list[int] = []
        budget.join(self)

    @property
    def num_used(self) -> int:
        return self.num_committed - len(self._spare) - len(self._cached)

    @property
    def num_cached(self) -> int:
        return len(self._cached)

    @property
    def num_spare(self) -> int:
        return len(self._spare)

    @property
    def num_committed(self) -> int:
        return len(self._references) - len(self._decommitted)

    @property
    def num_available(self) -> int:
        """Blocks that acquire() could hand out now."""
        fresh = min(self._budget.available_bytes(self) // self.block_bytes, self._num_uncommitted)
        return len(self._spare) + len(self._cached) + fresh

    @property
    def spare_bytes(self) -> int:
        return len(self._spare) * self.block_bytes

    @property
    def cached_bytes(self) -> int:
        return len(self._cached) * self.block_bytes

    @property
    def oldest_release(self) -> int:
        return next(iter(self._cached.values()))

    def acquire(self, num_blocks: int) -> list[BlockId] | None:
        """Blocks with one reference each, contents undefined; None, and nothing evicted, if there are not
        that many. Evicts cached blocks, of any pool, only where spare and fresh memory does not suffice.
        """
        if num_blocks > len(self._spare):
            if num_blocks > self.num_available:
                return None
            self._evict_for(num_blocks)
        num_spare = min(num_blocks, len(self._spare))
        split = len(self._spare) - num_spare
        blocks = self._spare[split:][::-1]
        del self._spare[split:]
        blocks += self._commit(num_blocks - num_spare)
        for block in blocks:
            assert self._references[block] == 0, f"block {block} handed out twice"
            self._references[block] = 1
        return blocks

    def retain(self, blocks: Sequence[BlockId]) -> None:
        """Adds a reference to blocks that are in use or cached, for another owner."""
        for block in blocks:
            if self._references[block] == 0:
                assert block in self._cached, f"retain of free block {block}"
                del self._cached[block]
            self._references[block] += 1

    def release(self, blocks: Sequence[BlockId]) -> None:
        """Takes a reference away; blocks without one are free, and cached if `cache` knows their content."""
        for block in blocks:
            assert self._references[block] > 0, f"release of free block {block}"
            self._references[block] -= 1
            if self._references[block] == 0:
                if self.cache is not None and self.cache.num_recorded(block):
                    self._cached[block] = self._budget.tick()
                else:
                    self._spare.append(block)

    def is_shared(self, block: BlockId) -> bool:
        """Whether the block has more than one owner, so that none of them may write to it."""
        return self._references[block] > 1

    def references(self) -> dict[BlockId, int]:
        """How many owners each block in use has."""
        return {BlockId(block): count for block, count in enumerate(self._references) if count}

    def uncache(self, block: BlockId) -> None:
        """For `cache`: the block's content can no longer be found."""
        if self._cached.pop(block, None) is not None:
            self._spare.append(block)

    def evict(self) -> None:
        """Makes the cached block released first spare, and what builds on it."""
        assert self.cache is not None
        self.cache.forget(next(iter(self._cached)))

    def drop_cached(self) -> None:
        """Makes all cached blocks spare."""
        while self._cached:
            self.evict()

    def trim(self) -> None:
        """Gives the memory of all spare blocks back to the system."""
        if not self._spare:
            return
        self._arena.release(self._spare)
        self._budget.release(self.spare_bytes)
        self._decommitted += self._spare
        self._spare = []

    def close(self) -> None:
        """Gives everything back. Nothing may use a block any more."""
        assert self.num_used == 0, f"close with {self.num_used} blocks in use"
        self.drop_cached()
        self.trim()
        self._budget.leave(self)
        self._arena.close()

    def check(self) -> None:
        """Every block is in use, cached, spare or without memory, and in exactly one of these states."""
        free = [*self._cached, *self._spare, *self._decommitted]
        assert len(set(free)) == len(free), "a block is free twice"
        assert all(self._references[block] == 0 for block in free), "a free block has references"
        assert sum(count > 0 for count in self._references) == self.num_used, "a block leaked"
        assert len(self._references) <= self._arena.num_blocks, "more blocks than the arena has"
        assert list(self._cached.values()) == sorted(self._cached.values()), "cached blocks are out of order"
        if self.cache is not None:
            known = [bool(self.cache.num_recorded(block)) for block in free]
            cached = [block in self._cached for block in free]
            assert known == cached, "cached is not the same as free and known"

    @property
    def _num_uncommitted(self) -> int:
        return self._arena.num_blocks - self.num_committed

    def _evict_for(self, num_blocks: int) -> None:
        """Evicts until `num_blocks`, at most num_available, are spare or can be committed."""
        while (missing := num_blocks - len(self._spare)) > 0:
            room = self._budget.uncached_bytes(self) // self.block_bytes
            if missing <= min(room, self._num_uncommitted):
                return
            if room < self._num_uncommitted:
                self._budget.evict_oldest()
            else:  # the arena is what is short: memory of other pools does not help
                self.evict()

    def _commit(self, num_blocks: int) -> list[BlockId]:
        """Blocks without memory, now counted in the budget; there are that many."""
        self._budget.commit(num_blocks * self.block_bytes, self)
        split = max(len(self._decommitted) - num_blocks, 0)
        blocks = self._decommitted[split:]
        del self._decommitted[split:]
        first_new = len(self._references)
        num_new = num_blocks - len(blocks)
        self._references += [0] * num_new
        return blocks + [BlockId(block) for block in range(first_new, first_new + num_new)]
