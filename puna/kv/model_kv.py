"""The KV memory of one model: who owns it, and who finds what is in there."""

from __future__ import annotations

import weakref
from bisect import bisect_right
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from puna._native import BlockPool, Cursor, KvBlocks, PrefixTree, SequenceTable
from puna.backends.base import BlockMemory, DeviceOutOfMemory, KvGroup
from puna.config.sizes import binary_size
from puna.kv.blocks import BLOCK_TOKENS, blocks_for
from puna.kv.budget import Budget
from puna.kv.group_stats import GroupStats

_FEWEST_EXTENTS = 8  # of a group, within the limits: with fewer, blocks had better get memory one by one
_SLICE = 4096  # extents or blocks that one call deals with, where many may have to be

_FOREVER = 2**63 - 1
_MOST_BLOCKS = 2**27  # of a table: positions are int32

_Result = TypeVar("_Result")


class _Group(NamedTuple):
    """Layers that share blocks."""

    pool: BlockPool
    memory: BlockMemory
    window: int | None

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


class ModelKv:
    """Blocks of all groups of a model's layers, within a budget shared by all models. Sizes are in bytes.

    A block with memory is in use (somebody holds it), cached (the prefix tree knows its content), or spare.
    Memory is counted by extents. Where spare and fresh memory does not suffice, cached content goes in the
    order in which it was released, over all groups and models.

    A static one has memory for all of its blocks for as long as it is open.
    """

    def __init__(self, groups: Sequence[KvGroup], memories: Sequence[BlockMemory], budget: Budget) -> None:
        """memories: for each group, this object's to close."""
        self.blocks = KvBlocks(
            [
                (m.num_blocks, m.block_bytes, m.extent_blocks, m.extent_bytes, group.window or 0)
                for group, m in zip(groups, memories, strict=True)
            ],
            budget.clock,
            _weakly(self._find_memory),
            _weakly(self._commit_ahead),
            [memory.move for memory in memories],
        )
        self.tree = PrefixTree(self.blocks)
        self.groups = tuple(
            _Group(self.blocks.pool(i), memory, group.window)
            for i, (group, memory) in enumerate(zip(groups, memories, strict=True))
        )
        self.has_windows = any(group.window is not None for group in groups)
        self.block_bytes = sum(memory.block_bytes for memory in memories)
        """Of one block of each group."""
        self.extent_bytes = sum(memory.extent_bytes for memory in memories)
        self._budget = budget
        self._is_static = self._keeps_extents = False
        self._refused_at: int | None = None  # as Budget.num_releases
        budget.join(self)

    def new_table(self, *, keeps_all: bool = False) -> SequenceTable:
        """Empty. keeps_all: its windows do not slide, for a sequence whose context may shift so that a window
        reaches what it had left behind.
        """
        return SequenceTable(self.blocks, keeps_all)

    def copy_partial(
        self, cursor: Cursor, table: SequenceTable, tokens: NDArray[np.int32], limit: int
    ) -> int:
        """Copies the beginning of a block that goes on differently behind the cursor, where the table ends.

        tokens, limit: as for PrefixTree.follow(). Returns how many tokens the table has got.
        """
        found = self.tree.find_partial(cursor, tokens, limit)
        if found is None:
            return 0
        blocks, num_tokens = found
        start, before = cursor.num_blocks * BLOCK_TOKENS, table.arrays()
        for group, block in enumerate(blocks):
            self.blocks.retain(group, [block])  # or growing might evict it
        try:
            if not table.grow(start + num_tokens):
                return 0
            for i, (array, own) in enumerate(zip(before, table.arrays(), strict=True)):
                source = np.append(array, np.int32(blocks[i]))
                self.groups[i].memory.move(source, own, start, start, num_tokens)
        finally:
            for group, block in enumerate(blocks):
                self.blocks.release(group, [block])
        return num_tokens

    def bytes_for(self, num_tokens: int, num_windows: int | None = 1) -> int:
        """Memory that a table of so many tokens takes at most.

        num_windows: of how many tokens' windows it holds all blocks at once, where windows slide: of two
        while a context shifts. None: they do not slide.
        """
        num_blocks = blocks_for(num_tokens)
        return sum(
            memory.block_bytes * min(num_blocks, _most_held(window, num_windows))
            for _, memory, window in self.groups
        )

    def tokens_within(self, num_bytes: int, num_windows: int | None = 1) -> int:
        """How many tokens a table of that size has room for. num_windows: as for bytes_for()."""
        most = (memory.num_blocks for _, memory, window in self.groups if window is None)
        counts = range(min(most, default=_MOST_BLOCKS) + 1)

        def size_of(num_blocks: int) -> int:
            return self.bytes_for(num_blocks * BLOCK_TOKENS, num_windows)

        return (bisect_right(counts, num_bytes, key=size_of) - 1) * BLOCK_TOKENS

    @property
    def used_bytes(self) -> int:
        """In blocks that tables or sessions hold."""
        return sum(pool.num_used * memory.block_bytes for pool, memory, _ in self.groups)

    @property
    def cached_bytes(self) -> int:
        """In blocks that are not held, but can be found by later sequences."""
        return sum(pool.num_cached * memory.block_bytes for pool, memory, _ in self.groups)

    @property
    def committed_bytes(self) -> int:
        return sum(
            (_num_extents(memory) - pool.num_uncommitted) * memory.extent_bytes
            for pool, memory, _ in self.groups
        )

    @property
    def reserved_bytes(self) -> int:
        """Address space."""
        return sum(_num_extents(memory) * memory.extent_bytes for _, memory, _ in self.groups)

    @property
    def spare_bytes(self) -> int:
        """Memory that trim() would give back."""
        if self._is_static:
            return 0
        return sum(pool.num_empty * memory.extent_bytes for pool, memory, _ in self.groups)

    @property
    def reclaimable_bytes(self) -> int:
        """Memory that trim() would give back if all that is cached were evicted."""
        if self._is_static:
            return 0
        return sum(pool.num_unused * memory.extent_bytes for pool, memory, _ in self.groups)

    @property
    def available_bytes(self) -> int:
        """That tables could take now."""
        free = ((pool.num_spare + pool.num_cached) * memory.block_bytes for pool, memory, _ in self.groups)
        return sum(free) + self._fresh_bytes()

    @property
    def most_bytes(self) -> int:
        """That tables could take if other models used no more than is guaranteed to them."""
        return self._usable_bytes(self._limit_bytes)

    @property
    def most_bytes_without_leases(self) -> int:
        """The same when all leases have ended."""
        return self._usable_bytes(self._budget.most_bytes(self))

    @property
    def is_too_coarse(self) -> bool:
        """Whether its extents are large against what it could have."""
        return self._is_too_coarse_for(self._limit_bytes)

    @property
    def must_shrink(self) -> bool:
        """Whether freed memory goes elsewhere: a limit is exceeded, or a guarantee of others unmet."""
        return not self._is_static and self._budget.debt_bytes > 0

    def keep_extents(self) -> None:
        """From now on it is never too coarse: there is no address space for finer extents."""
        self._keeps_extents = True

    def is_guaranteed(self, num_bytes: int) -> bool:
        """Whether so many more bytes are within what is guaranteed to the model."""
        return self.used_bytes + num_bytes <= self._budget.guaranteed_bytes(self)

    def unguaranteed_bytes(self, num_bytes: int) -> int:
        """The part of so many more bytes that is beyond the guarantee."""
        return max(num_bytes - max(self._budget.guaranteed_bytes(self) - self.used_bytes, 0), 0)

    def gives_to(self, other: ModelKv) -> bool:
        """Whether `other` gains by what this one gives back."""
        is_above = self.committed_bytes > self._budget.guaranteed_bytes(self)
        return is_above and not (self._is_static or other._is_static)

    def competes_with(self, other: ModelKv) -> bool:
        """Whether both take their memory from the same budget."""
        return self is other or not (self._is_static or other._is_static)

    def is_all_held_by(self, table: SequenceTable) -> bool:
        """Whether no other table has memory in use, in any model."""
        return self.used_bytes == table.held_bytes and self._budget.held_bytes(besides=self) == 0

    def describe_need(self, num_bytes: int) -> str:
        """For users: why there is not so much memory."""
        needed = f"needs {binary_size(num_bytes)} of KV memory"
        if self._is_refused:
            return f"{needed}, more than the device has left"
        taken = "" if self._is_static else self._budget.taken_for_long(self)
        text = f"{needed}, the limits leave it {binary_size(self.most_bytes)}"
        return f"{text}: {taken}" if taken else text

    def make_static(self) -> None:
        """Brings memory for every block, now, and keeps it. Raises DeviceOutOfMemory."""
        for index, group in enumerate(self.groups):
            group.memory.populate(self._commit(index, group.pool.num_uncommitted))
        self._is_static = True

    def oldest_release(self) -> int | None:
        """When what evict() would begin with was released, by the budget's clock; None: there is nothing."""
        return None if self._is_static else self.blocks.oldest_unused()

    def evict(self, num_bytes: int, before: int | None) -> None:
        """Makes about so much cached memory spare, and at least an extent: what was used longest ago, as long
        as it was released before a tick of the budget's clock. Much of it takes several calls.
        """
        self.blocks.evict_extents(
            _FOREVER if before is None else before, self.spare_bytes + num_bytes, _SLICE
        )

    def drop_cached(self) -> bool:
        """Makes what is cached spare; False: that was all. Much of it takes several calls."""
        return self.blocks.drop_cached(_SLICE)

    def trim(self, num_bytes: int | None = None) -> bool:
        """Gives spare memory back to the device, at least so much (None: all). Much of it takes several
        calls. False: that was all.
        """
        self._refused_at = None  # the device may have more now
        if self._is_static:
            return False
        left = self.spare_bytes if num_bytes is None else min(num_bytes, self.spare_bytes)
        for group in self.groups:
            if left > 0:
                wanted = min(-(-left // group.memory.extent_bytes), _SLICE)
                left -= self._give_back(group, wanted)
        return left > 0

    def close(self) -> None:
        """Gives everything back. Nobody holds any of it."""
        num_used = sum(pool.num_used for pool, _, _ in self.groups)
        assert num_used == 0, f"close with {num_used} blocks in use"
        self._budget.release(self.committed_bytes)
        self._budget.leave(self)
        for _, memory, _ in self.groups:
            memory.close()

    def group_stats(self) -> list[GroupStats]:
        return [
            GroupStats(window, memory.block_bytes, pool.num_used, pool.num_cached, pool.num_spare)
            for pool, memory, window in self.groups
        ]

    def check(self) -> None:
        """Asserts that its books are right."""
        self.blocks.check()

    @property
    def _limit_bytes(self) -> int:
        return self._budget.most_bytes(self) - self._budget.leased_bytes

    @property
    def _is_refused(self) -> bool:
        """Whether the device had no more memory, and has been given none back since then."""
        return self._refused_at == self._budget.num_releases

    def _fresh_bytes(self) -> int:
        return 0 if self._is_refused else max(self._budget.available_bytes(self), 0)

    def _usable_bytes(self, num_bytes: int) -> int:
        """The part of it that blocks could fill: whole extents, if these are not too coarse for it."""
        num_bytes = self.reserved_bytes if self._is_static else min(max(num_bytes, 0), self.reserved_bytes)
        if self._is_too_coarse_for(num_bytes):
            return num_bytes
        if len(self.groups) > 1:
            return num_bytes if self._is_static else max(num_bytes - sum(map(_most_unused, self.groups)), 0)
        _, memory, _ = self.groups[0]
        num_blocks = min(num_bytes // memory.extent_bytes * memory.extent_blocks, memory.num_blocks)
        return num_blocks * memory.block_bytes

    def _is_too_coarse_for(self, num_bytes: int) -> bool:
        if self._is_static or self._keeps_extents or all(m.extent_blocks == 1 for _, m, _ in self.groups):
            return False
        return num_bytes < _FEWEST_EXTENTS * max(memory.extent_bytes for _, memory, _ in self.groups)

    def _find_memory(self, counts: list[int]) -> bool:
        """Makes so many blocks of each group spare, of fresh memory, then of the oldest content. False, and
        nothing evicted, if there are not so many; False, too, if the device refuses what the budget allows.
        """
        self._refused_at = None  # others than puna may have made room on the device
        while (index := self._first_short(counts)) is not None:
            if not self._is_available(counts):
                return False
            missing = counts[index] - self.groups[index].pool.num_spare
            if not self._commit_some(index, missing, counts) and not self._evict_oldest(index):
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
            elif not self._is_static:
                given += group.num_given(count) * group.memory.extent_bytes
        if needed == 0:
            return True
        return not self._is_refused and needed <= given + self._budget.available_bytes(self)

    def _commit_some(self, index: int, num_blocks: int, counts: list[int]) -> bool:
        """Commits extents for so many blocks, or for some, where nothing has to be evicted for it."""
        group = self.groups[index]
        wanted = min(group.pool.extents_for(num_blocks), group.pool.num_uncommitted)
        if wanted == 0 or self._is_refused:
            return False
        surplus = [g.num_surplus(count) for g, count in zip(self.groups, counts, strict=True)]
        free = self._budget.uncached_bytes(self)
        own = sum(n * g.memory.extent_bytes for n, g in zip(surplus, self.groups, strict=True))
        num_extents = min(wanted, (free + own) // group.memory.extent_bytes)
        if num_extents <= 0:
            return False
        for other, num_given in zip(self.groups, surplus, strict=True):
            missing = num_extents * group.memory.extent_bytes - self._budget.uncached_bytes(self)
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
        if self._give_back_surplus(counts) or self._budget.give_back(self):
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

    def _evict_oldest(self, index: int) -> bool:
        """Evicts what was used longest ago: a block of this group, or, where its memory can become this
        group's, an extent of another group or model. False: there is nothing.
        """
        pool = self.groups[index].pool
        own = pool.oldest_cached()
        others: int | None = None
        if pool.num_uncommitted and not self._is_refused:
            own_extents, theirs = self.oldest_release(), self._budget.oldest_release(self)
            others = min((tick for tick in (own_extents, theirs) if tick is not None), default=None)
        if own is not None and (others is None or own <= others):
            self.blocks.evict(index)
        elif others is None:
            return False
        elif others == own_extents:
            self.evict(1, None)
        else:
            self._budget.evict_oldest(self)
        return True

    def _commit(self, index: int, num_extents: int) -> list[int]:
        """Raises DeviceOutOfMemory, and has changed nothing of this model."""
        group = self.groups[index]
        num_bytes = num_extents * group.memory.extent_bytes
        self._budget.commit(num_bytes, self)
        extents = group.pool.commit(num_extents)
        try:
            group.memory.allocate(extents)
        except DeviceOutOfMemory:
            group.pool.uncommit(extents)
            self._budget.uncommit(num_bytes)
            raise
        return extents

    def _give_back(self, group: _Group, num_extents: int) -> int:
        """Bytes that are free now, of so many empty extents."""
        extents = group.pool.uncommit_empty(num_extents)
        num_bytes = len(extents) * group.memory.extent_bytes
        if extents:
            group.memory.free(extents)
            self._budget.release(num_bytes)
        return num_bytes

    def _commit_ahead(self, index: int) -> None:
        """Commits a group's next extent before it is needed, if that costs nobody anything."""
        group = self.groups[index]
        fits = self._budget.free_bytes(self) >= group.memory.extent_bytes
        if group.pool.num_uncommitted and fits and not self._is_refused:
            with suppress(DeviceOutOfMemory):
                for extent in self._commit(index, 1):
                    group.memory.prefetch(extent)


def _most_unused(group: _Group) -> int:
    """Bytes of extents that a sequence mostly leaves unused at most: of one; a window may lie in two more."""
    memory = group.memory
    num_extents = 1 if group.window is None or memory.extent_blocks == 1 else 3
    return num_extents * memory.extent_bytes - memory.block_bytes


def _num_extents(memory: BlockMemory) -> int:
    return -(-memory.num_blocks // memory.extent_blocks)


def _most_held(window: int | None, num_windows: int | None) -> int:
    """Blocks of one sequence. num_windows: see ModelKv.bytes_for()."""
    if window is None or num_windows is None:
        return _MOST_BLOCKS
    # At worst a window begins with the last token of a block, and what moves begins within one.
    return num_windows * ((window + BLOCK_TOKENS - 2) // BLOCK_TOKENS + 1) + num_windows - 1


def _weakly(method: Callable[..., _Result]) -> Callable[..., _Result]:
    """For native code, whose references no garbage collector follows."""
    reference = weakref.WeakMethod(method)

    def call(*arguments: Any) -> _Result:
        bound = reference()
        assert bound is not None, "KV memory outlives its model"
        return bound(*arguments)

    return call
