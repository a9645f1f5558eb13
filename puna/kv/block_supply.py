"""Where the memory of a model's blocks comes from, and where it goes."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

from puna._native import BlockPool, KvBlocks
from puna.backends.base import BlockMemory, DeviceOutOfMemory, KvGroup
from puna.kv.budget import Budget
from puna.kv.reclaimable import Reclaimable

SLICE = 4096
"""Extents or blocks that one call deals with, where many may have to be."""
_FOREVER = 2**63 - 1

_Result = TypeVar("_Result")


class BlockGroup(NamedTuple):
    """Blocks that some of the layers share, and their memory."""

    pool: BlockPool
    memory: BlockMemory
    window: int | None
    is_state: bool

    def num_given(self, num_blocks: int) -> int:
        """Extents without blocks in use that it can do without once so many of its blocks are taken."""
        pool = self.pool
        from_used = pool.num_spare + pool.num_cached - pool.num_unused_blocks
        left = pool.num_unused_blocks - max(num_blocks - from_used, 0)
        return min(max(left, 0) // self.memory.extent_blocks, pool.num_unused)

    def num_surplus(self, num_blocks: int) -> int:
        """Empty extents that it can do without once so many of its spare blocks are taken."""
        left = max(self.pool.num_spare - num_blocks, 0)
        return min(left // self.memory.extent_blocks, self.pool.num_empty)


class BlockSupply:
    """Commits memory for a model's blocks within the budget, and evicts what is cached where that is short.

    A static one has memory for all blocks for as long as it is open.
    """

    def __init__(
        self, model: Reclaimable, groups: Sequence[KvGroup], memories: Sequence[BlockMemory], budget: Budget
    ) -> None:
        """model: for whom it asks the budget."""
        self.blocks = KvBlocks(
            [
                (m.num_blocks, m.block_bytes, m.extent_blocks, m.extent_bytes, g.window or 0, int(g.is_state))
                for g, m in zip(groups, memories, strict=True)
            ],
            budget.clock,
            _weakly(self.find),
            _weakly(self.commit_ahead),
            [memory.move for memory in memories],
        )
        self.groups = tuple(
            BlockGroup(self.blocks.pool(i), memory, group.window, group.is_state)
            for i, (group, memory) in enumerate(zip(groups, memories, strict=True))
        )
        self.is_static = False
        self._model = model
        self._budget = budget
        self._refused_at: int | None = None  # as Budget.num_releases

    @property
    def spare_bytes(self) -> int:
        """Memory that trim() would give back."""
        if self.is_static:
            return 0
        return sum(group.pool.num_empty * group.memory.extent_bytes for group in self.groups)

    @property
    def is_refused(self) -> bool:
        """Whether the device had no more memory, and has been given none back since then."""
        return self._refused_at == self._budget.num_releases

    @property
    def fresh_bytes(self) -> int:
        """What could be committed now, besides what the model itself can do without."""
        return 0 if self.is_refused else max(self._budget.available_bytes(self._model), 0)

    def make_static(self) -> None:
        """Brings memory for every block, now, and keeps it. Raises DeviceOutOfMemory."""
        for index, group in enumerate(self.groups):
            group.memory.populate(self._commit(index, group.pool.num_uncommitted))
        self.is_static = True

    def oldest_release(self) -> int | None:
        """When what evict() would begin with was released, by the budget's clock; None: there is nothing."""
        return None if self.is_static else self.blocks.oldest_unused()

    def evict(self, num_bytes: int, before: int | None) -> None:
        """Makes about so much cached memory spare, and at least an extent: what was used longest ago, as long
        as it was released before a tick of the budget's clock. Much of it takes several calls.
        """
        self.blocks.evict_extents(_FOREVER if before is None else before, self.spare_bytes + num_bytes, SLICE)

    def trim(self, num_bytes: int | None = None) -> bool:
        """Gives spare memory back to the device, at least so much (None: all). Much of it takes several
        calls. False: that was all.
        """
        self._refused_at = None  # the device may have more now
        if self.is_static:
            return False
        left = self.spare_bytes if num_bytes is None else min(num_bytes, self.spare_bytes)
        for group in self.groups:
            if left > 0:
                wanted = min(-(-left // group.memory.extent_bytes), SLICE)
                left -= self._give_back(group, wanted)
        return left > 0

    def find(self, counts: list[int]) -> bool:
        """Makes so many blocks of each group spare, of fresh memory, then of the oldest content. False, and
        nothing evicted, if there are not so many; False, too, if the device refuses what the budget allows.
        """
        self._refused_at = None  # others than puna may have made room on the device
        while (index := self._first_short(counts)) is not None:
            if not self._is_available(counts):
                return False
            missing = counts[index] - self.groups[index].pool.num_spare
            if not self._commit_some(index, missing, counts) and not self._evict_oldest(index, counts):
                return False
        return True

    def _first_short(self, counts: list[int]) -> int | None:
        pools = enumerate(zip(self.groups, counts, strict=True))
        return next((i for i, (group, count) in pools if count > group.pool.num_spare), None)

    def _is_available(self, counts: list[int]) -> bool:
        """Whether so many blocks of each group could be spare if cached content went."""
        needed = given = 0
        for group, count in zip(self.groups, counts, strict=True):
            missing = count - group.pool.num_spare - group.pool.num_cached
            if missing > 0:
                num_extents = group.pool.extents_for(missing)
                if num_extents > group.pool.num_uncommitted:
                    return False
                needed += num_extents * group.memory.extent_bytes
            elif not self.is_static:
                given += group.num_given(count) * group.memory.extent_bytes
        if needed == 0:
            return True
        return not self.is_refused and needed <= given + self._budget.available_bytes(self._model)

    def _commit_some(self, index: int, num_blocks: int, counts: list[int]) -> bool:
        """Commits extents for so many blocks, or for some, where nothing has to be evicted for it."""
        group = self.groups[index]
        wanted = min(group.pool.extents_for(num_blocks), group.pool.num_uncommitted)
        if wanted == 0 or self.is_refused:
            return False
        surplus = [g.num_surplus(count) for g, count in zip(self.groups, counts, strict=True)]
        num_extents = min(wanted, self._uncached_bytes(counts) // group.memory.extent_bytes)
        if num_extents <= 0:
            return False
        for other, num_given in zip(self.groups, surplus, strict=True):
            missing = num_extents * group.memory.extent_bytes - self._budget.uncached_bytes(self._model)
            if missing > 0 and num_given > 0:
                self._give_back(other, min(-(-missing // other.memory.extent_bytes), num_given))
        while num_extents:
            try:
                self._commit(index, num_extents)
                return True
            except DeviceOutOfMemory:
                self._refused_at = self._budget.num_releases
                if self._give_back_any(counts):
                    return True
                num_extents //= 2
        return False

    def _give_back_any(self, counts: list[int]) -> bool:
        """Lets the device have memory that nobody needs: surplus extents of this model's groups, what others
        can do without, or the oldest content of this model's groups that are not short. False: there is none.
        """
        if self._give_back_surplus(counts) or self._budget.give_back(self._model):
            return True
        while self.oldest_release() is not None:
            if not any(group.num_given(count) for group, count in zip(self.groups, counts, strict=True)):
                break
            self.evict(1, None)
            if self._give_back_surplus(counts):
                return True
        return False

    def _give_back_surplus(self, counts: list[int]) -> bool:
        given = [
            self._give_back(group, group.num_surplus(count))
            for group, count in zip(self.groups, counts, strict=True)
        ]
        return any(given)

    def _uncached_bytes(self, counts: list[int]) -> int:
        """What can be committed without evictions, beside so many blocks of each group."""
        groups = zip(self.groups, counts, strict=True)
        own = sum(group.num_surplus(count) * group.memory.extent_bytes for group, count in groups)
        return self._budget.uncached_bytes(self._model) + own

    def _evict_oldest(self, index: int, counts: list[int]) -> bool:
        """Evicts what was used longest ago: a block of this group, or, where its memory can become this
        group's, of another group or model, as much of that as one extent lacks. False: there is nothing.
        """
        pool, memory, *_ = self.groups[index]
        own = pool.oldest_cached()
        others: int | None = None
        if pool.num_uncommitted and not self.is_refused:
            own_extents, theirs = self.oldest_release(), self._budget.oldest_release(self._model)
            others = _first(own_extents, theirs)
        if own is not None and (others is None or own <= others):
            self.blocks.evict(index)
        elif others is None:
            return False
        else:
            missing = max(memory.extent_bytes - self._uncached_bytes(counts), 1)
            if others == own_extents:
                self.evict(missing, _first(own, theirs))
            else:
                self._budget.evict_oldest(self._model, missing, _first(own, own_extents))
        return True

    def _commit(self, index: int, num_extents: int) -> list[int]:
        """Raises DeviceOutOfMemory, and has changed nothing of this model."""
        group = self.groups[index]
        num_bytes = num_extents * group.memory.extent_bytes
        self._budget.commit(num_bytes, self._model)
        extents = group.pool.commit(num_extents)
        try:
            group.memory.allocate(extents)
        except DeviceOutOfMemory:
            group.pool.uncommit(extents)
            self._budget.uncommit(num_bytes)
            raise
        return extents

    def _give_back(self, group: BlockGroup, num_extents: int) -> int:
        """Bytes that are free now, of so many empty extents."""
        extents = group.pool.uncommit_empty(num_extents)
        num_bytes = len(extents) * group.memory.extent_bytes
        if extents:
            group.memory.free(extents)
            self._budget.release(num_bytes)
        return num_bytes

    def commit_ahead(self, index: int) -> None:
        """Commits a group's next extent before it is needed, if that costs nobody anything."""
        group = self.groups[index]
        fits = self._budget.free_bytes(self._model) >= group.memory.extent_bytes
        if group.pool.num_uncommitted and fits and not self.is_refused:
            with suppress(DeviceOutOfMemory):
                for extent in self._commit(index, 1):
                    group.memory.prefetch(extent)


def _first(*ticks: int | None) -> int | None:
    return min((tick for tick in ticks if tick is not None), default=None)


def _weakly(method: Callable[..., _Result]) -> Callable[..., _Result]:
    """For native code, whose references no garbage collector follows."""
    reference = weakref.WeakMethod(method)

    def call(*arguments: Any) -> _Result:
        bound = reference()
        assert bound is not None, "KV memory outlives its model"
        return bound(*arguments)

    return call
