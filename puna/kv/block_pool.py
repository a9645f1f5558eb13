"""Who owns which KV block of a model."""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from typing import NewType, Protocol

from puna.backends.base import BlockMemory, DeviceOutOfMemory
from puna.config.sizes import binary_size
from puna.kv.budget import Budget
from puna.kv.extent_map import ExtentMap
from puna.kv.extents import is_too_coarse

BlockId = NewType("BlockId", int)


class ContentIndex(Protocol):
    """Who knows what a block holds: the prefix cache."""

    def num_recorded(self, block: BlockId) -> int:
        """Tokens at the start of the block that can be found; 0: nobody will look for this block."""

    def forget(self, block: BlockId) -> None:
        """Makes the block unfindable, and what builds on it; tells the pool so by uncache()."""


class BlockPool:
    """Hands out the blocks of a device's memory, with reference counts, within a budget shared by all pools.

    A block is in use (references > 0), cached (free, but `cache` knows its content), spare (free, but its
    memory is still counted), or has no memory. Cached blocks are evicted in the order in which they were
    released, over all pools of the budget; so whoever releases the last block of a sequence first keeps
    the beginnings for longest, and lets no block outlive one that it builds on.

    Memory is counted by extents of blocks. The free block with the lowest id is used first, so that what is
    in use gathers in few extents and the others can be given back.

    A static pool has memory for all of its blocks for as long as it is open.
    """

    def __init__(self, memory: BlockMemory, budget: Budget) -> None:
        self.num_blocks = memory.num_blocks
        self.block_bytes = memory.block_bytes
        self.extent_bytes = memory.extent_bytes
        self.cache: ContentIndex | None = None
        self._memory = memory
        self._budget = budget
        self._extents = ExtentMap(memory.num_blocks, memory.extent_blocks)
        # When each was released, first to last.
        self._cached: OrderedDict[BlockId, int] = OrderedDict()
        self._spare: list[BlockId] = []  # a heap
        self._references: dict[BlockId, int] = {}  # of blocks in use
        self._is_static = self._keeps_extents = False
        self._refused_at: int | None = None  # as Budget.num_releases
        budget.join(self)

    @property
    def num_used(self) -> int:
        return len(self._references)

    @property
    def num_cached(self) -> int:
        return len(self._cached)

    @property
    def num_spare(self) -> int:
        return len(self._spare)

    @property
    def committed_bytes(self) -> int:
        return self._extents.num_committed * self.extent_bytes

    @property
    def reserved_bytes(self) -> int:
        """Address space."""
        return self._extents.num_extents * self.extent_bytes

    @property
    def num_available(self) -> int:
        """Blocks that acquire() could hand out now."""
        fresh = 0 if self._is_refused else max(self._budget.available_bytes(self), 0) // self.extent_bytes
        return len(self._spare) + len(self._cached) + self._extents.num_blocks_of(fresh)

    @property
    def _is_refused(self) -> bool:
        """Whether the device had no more memory, and nobody has given it any back since then."""
        return self._refused_at == self._budget.num_releases

    @property
    def most_bytes(self) -> int:
        """What the pool could have if others used no more than their minimum."""
        return self._budget.most_bytes(self) - self._budget.leased_bytes

    @property
    def most_blocks(self) -> int:
        """Blocks that could be in use at once if other pools used no more than their minimum; in a pool that
        is too coarse, once it was replaced by a finer one.
        """
        return self._blocks_within(self.most_bytes)

    @property
    def most_blocks_without_leases(self) -> int:
        """The same when all leases have ended."""
        return self._blocks_within(self._budget.most_bytes(self))

    def describe_need(self, num_blocks: int) -> str:
        """For users: what so many blocks take, and why there are not that many."""
        needed, most = (binary_size(count * self.block_bytes) for count in (num_blocks, self.most_blocks))
        if self._is_refused:
            return f"needs {needed} of KV memory, more than the device has left"
        text = f"needs {needed} of KV memory, the limits leave it {most}"
        taken = "" if self._is_static else self._budget.taken_for_long(self)
        return f"{text}: {taken}" if taken else text

    @property
    def is_too_coarse(self) -> bool:
        """Whether its extents are large against what it could have."""
        return self._is_too_coarse_for(self.most_bytes)

    def keep_extents(self) -> None:
        """It is never too coarse: there is no address space for a finer one."""
        self._keeps_extents = True

    @property
    def minimum_bytes(self) -> int:
        """Memory that no other pool takes."""
        return self._budget.minimum_bytes(self)

    def gives_to(self, other: BlockPool) -> bool:
        """Whether `other` gains by what this pool gives back."""
        above_minimum = self.committed_bytes > self._budget.assured_bytes(self)
        return above_minimum and not (self._is_static or other._is_static)

    def competes_with(self, other: BlockPool) -> bool:
        """Whether they take memory from the same."""
        return self is other or not (self._is_static or other._is_static)

    def shared_bytes(self, num_blocks: int) -> int:
        """What that many more blocks take, beyond what the pool is sure of."""
        promised = max(self._budget.assured_bytes(self) - self.num_used * self.block_bytes, 0)
        return max(num_blocks * self.block_bytes - promised, 0)

    @property
    def must_shrink(self) -> bool:
        """Whether what is given back is gone: to fall below a limit, or to those who are sure of it."""
        return not self._is_static and self._budget.debt_bytes > 0

    def is_sure_of(self, num_blocks: int) -> bool:
        """Whether that many more are within what the pool is sure of."""
        return (self.num_used + num_blocks) * self.block_bytes <= self._budget.assured_bytes(self)

    def is_all_held_by(self, num_blocks: int) -> bool:
        """Whether nobody has memory in use but the owner of so many blocks."""
        return self.num_used == num_blocks and self._budget.held_bytes(besides=self) == 0

    @property
    def spare_bytes(self) -> int:
        """Memory that could be given back at once."""
        return 0 if self._is_static else self._extents.num_empty * self.extent_bytes

    @property
    def reclaimable_bytes(self) -> int:
        """Memory that could be given back if cached blocks were evicted."""
        return 0 if self._is_static else self._extents.num_unused * self.extent_bytes

    def oldest_release(self) -> int | None:
        """When what evict_extent() would evict was released, by Budget.tick(); None: nothing."""
        return None if self._is_static else self._extents.oldest_unused()[1]

    def make_static(self) -> None:
        """Brings memory for every block, now, and keeps it. Raises DeviceOutOfMemory."""
        self._memory.populate(self._commit(self._extents.num_uncommitted))
        self._is_static = True

    def acquire(self, num_blocks: int) -> list[BlockId] | None:
        """Blocks with one reference each, contents undefined; None, and nothing evicted, if there are not
        that many; None, too, if the device refuses them. Evicts cached blocks, of any pool, only where spare
        and fresh memory does not suffice.
        """
        if num_blocks > len(self._spare) and not self._find_memory(num_blocks):
            return None
        blocks = [heapq.heappop(self._spare) for _ in range(num_blocks)]
        for block in blocks:
            assert block not in self._references, f"block {block} handed out twice"
            self._references[block] = 1
            self._extents.spare_used(block)
        self._fetch_ahead()
        return blocks

    def retain(self, blocks: Sequence[BlockId]) -> None:
        """Adds a reference to blocks that are in use or cached, for another owner."""
        for block in blocks:
            if block in self._references:
                self._references[block] += 1
            else:
                assert block in self._cached, f"retain of free block {block}"
                del self._cached[block]
                self._references[block] = 1
                self._extents.cached_used(block)

    def release(self, blocks: Sequence[BlockId]) -> None:
        """Takes a reference away; blocks without one are free, and cached if `cache` knows their content."""
        for block in blocks:
            count = self._references.get(block, 0)
            assert count > 0, f"release of free block {block}"
            if count > 1:
                self._references[block] = count - 1
                continue
            del self._references[block]
            if self.cache is not None and self.cache.num_recorded(block):
                self._cached[block] = now = self._budget.tick()
                self._extents.used_cached(block, now)
            else:
                heapq.heappush(self._spare, block)
                self._extents.used_spare(block)

    def is_shared(self, block: BlockId) -> bool:
        """Whether the block has more than one owner, so that none of them may write to it."""
        return self._references.get(block, 0) > 1

    def references(self) -> dict[BlockId, int]:
        """How many owners each block in use has."""
        return dict(self._references)

    def cached(self) -> list[BlockId]:
        """All cached blocks, last released first."""
        return list(reversed(self._cached))

    def uncache(self, block: BlockId) -> None:
        """For `cache`: the block's content can no longer be found."""
        if self._cached.pop(block, None) is not None:
            heapq.heappush(self._spare, block)
            self._extents.cached_spare(block)

    def evict(self) -> None:
        """Makes the cached block released first spare, and what builds on it."""
        assert self.cache is not None
        self.cache.forget(next(iter(self._cached)))

    def evict_extent(self) -> None:
        """Empties the extent of cached blocks of which the last was released first."""
        assert self.cache is not None
        extent, _ = self._extents.oldest_unused()
        for block in self._extents.blocks(extent):
            if block in self._cached:
                self.cache.forget(BlockId(block))

    def drop_cached(self) -> None:
        """Makes all cached blocks spare."""
        while self._cached:
            self.evict()

    def trim(self) -> None:
        """Gives the memory of all extents without content back to the device, which may then refuse less."""
        self._refused_at = None
        if not self._is_static and (empty := self._extents.take_empty()):
            self._memory.free(empty)
            self._budget.release(len(empty) * self.extent_bytes)
            self._spare = [block for block in self._spare if self._extents.is_committed(block)]
            heapq.heapify(self._spare)

    def close(self) -> None:
        """Gives everything back. Nothing may use a block any more."""
        assert self.num_used == 0, f"close with {self.num_used} blocks in use"
        self._is_static = False
        self.drop_cached()
        self.trim()
        self._budget.leave(self)
        self._memory.close()

    def check(self) -> None:
        """Every block with memory is in use, cached or spare, and in exactly one of these states."""
        free = [*self._cached, *self._spare]
        assert len(set(free)) == len(free), "a block is free twice"
        assert self._references.keys().isdisjoint(free), "a free block has references"
        assert all(count > 0 for count in self._references.values()), "a block in use without references"
        assert list(self._cached.values()) == sorted(self._cached.values()), "cached blocks are out of order"
        if self.cache is not None:
            assert all(map(self.cache.num_recorded, self._cached)), "a cached block that nobody can find"
            assert not any(map(self.cache.num_recorded, self._spare)), "a spare block that can be found"
        self._extents.check(self._references, self._cached, self._spare)

    def _blocks_within(self, num_bytes: int) -> int:
        if self._is_static:
            return self.num_blocks
        if self._is_too_coarse_for(num_bytes):
            return min(max(num_bytes, 0) // self.block_bytes, self.num_blocks)
        return min(max(num_bytes, 0) // self.extent_bytes * self._extents.extent_blocks, self.num_blocks)

    def _is_too_coarse_for(self, num_bytes: int) -> bool:
        if self._is_static or self._keeps_extents or self._extents.extent_blocks == 1:
            return False
        return is_too_coarse(self.extent_bytes, num_bytes)

    def _find_memory(self, num_blocks: int) -> bool:
        """Until so many are spare: fresh memory, then the oldest content. False: there are not that many."""
        has_retried = False
        while num_blocks > len(self._spare):
            if num_blocks > self.num_available:
                if has_retried or not self._is_refused:
                    return False
                self._refused_at, has_retried = None, True  # others than puna may have made room
                continue
            missing = self._extents.for_blocks(num_blocks - len(self._spare))
            room = min(self._budget.uncached_bytes(self) // self.extent_bytes, self._extents.num_uncommitted)
            if room > 0 and not self._is_refused:
                self._commit_if_granted(min(missing, room))
            elif self._is_refused or not self._others_are_older():
                self.evict()
            else:
                self._budget.evict_oldest(self)
        return True

    def _commit_if_granted(self, num_extents: int) -> None:
        """So many, or as many as the device has memory for once other pools have given back what they can."""
        while num_extents:
            try:
                self._commit(num_extents)
                return
            except DeviceOutOfMemory:
                if not self._budget.give_back(self):
                    num_extents //= 2
        self._refused_at = self._budget.num_releases

    def _others_are_older(self) -> bool:
        """Whether it is another pool's content that should make way. Memory of others helps only if there
        are blocks for it."""
        others = self._budget.oldest_release(self)
        if others is None or self._extents.num_uncommitted == 0:
            return False
        return not self._cached or others < next(iter(self._cached.values()))

    def _commit(self, num_extents: int) -> list[int]:
        """Raises DeviceOutOfMemory, and has changed nothing of this pool."""
        self._budget.commit(num_extents * self.extent_bytes, self)
        extents = self._extents.commit(num_extents)
        try:
            self._memory.allocate(extents)
        except DeviceOutOfMemory:
            self._extents.take_back(extents)
            self._budget.uncommit(num_extents * self.extent_bytes)
            raise
        for extent in extents:
            for block in self._extents.blocks(extent):
                heapq.heappush(self._spare, BlockId(block))
        return extents

    def _fetch_ahead(self) -> None:
        """Commits the next extent before it is needed, if that costs nobody anything."""
        if self._extents.extent_blocks == 1 or len(self._spare) >= min(4, self._extents.extent_blocks):
            return
        if self._extents.num_uncommitted and self._budget.free_bytes(self) >= self.extent_bytes:
            with suppress(DeviceOutOfMemory):
                for extent in self._commit(1):
                    self._memory.prefetch(extent)
