"""The KV memory of one model: who owns it, and who finds what is in there."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from puna._native import Cursor, PrefixTree, SequenceTable
from puna.backends.base import BlockMemory, KvGroup
from puna.config.sizes import binary_size
from puna.kv.block_supply import SLICE, BlockGroup, BlockSupply
from puna.kv.blocks import BLOCK_TOKENS, blocks_for
from puna.kv.budget import Budget
from puna.kv.group_stats import GroupStats

_FEWEST_EXTENTS = 8  # of a group, within the limits: with fewer, blocks had better get memory one by one
_MOST_BLOCKS = 2**27  # of a table: positions are int32


class ModelKv:
    """Blocks of all groups of a model's layers, within a budget shared by all models. Sizes are in bytes.

    A block with memory is in use (somebody holds it), cached (the prefix tree knows its content), or spare.
    Memory is counted by extents. Where spare and fresh memory does not suffice, cached content goes in the
    order in which it was released, over all groups and models.

    A static one has memory for all of its blocks for as long as it is open.
    """

    def __init__(self, groups: Sequence[KvGroup], memories: Sequence[BlockMemory], budget: Budget) -> None:
        """memories: for each group, this object's to close."""
        self.memories = tuple(memories)
        self._supply = BlockSupply(self, groups, memories, budget)
        self.blocks = self._supply.blocks
        self.groups = self._supply.groups
        self.tree = PrefixTree(self.blocks)
        self.has_windows = any(group.window is not None for group in groups)
        self.has_states = any(group.is_state for group in groups)
        self.block_bytes = sum(m.block_bytes for g, m in zip(groups, memories, strict=True) if not g.is_state)
        """Of 16 tokens in all layers that keep them."""
        self.state_bytes = sum(m.block_bytes for g, m in zip(groups, memories, strict=True) if g.is_state)
        """Of a sequence's state; 0 without recurrent layers."""
        self.extent_bytes = sum(memory.extent_bytes for memory in memories)
        self._budget = budget
        divisible = [memory.extent_bytes for memory in memories if memory.extent_blocks > 1]
        self._coarse_bytes = _FEWEST_EXTENTS * max(divisible, default=0)
        """With less than that, its extents are too large."""
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
        Nothing where there are recurrent layers: a state is that behind all of a table's tokens.

        tokens, limit: as for PrefixTree.follow(). Returns how many tokens the table has got.
        """
        if self.has_states:
            return 0
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
        """Memory that a table of so many tokens takes at most, with one state where there are recurrent
        layers: what it takes for another one while it reads a snapshot, it can do without.

        num_windows: of how many tokens' windows it holds all blocks at once, where windows slide: of two
        while a context shifts. None: they do not slide.
        """
        num_blocks = blocks_for(num_tokens)
        return sum(
            group.memory.block_bytes * min(num_blocks, _most_held(group, num_windows))
            for group in self.groups
        )

    def tokens_within(self, num_bytes: int, num_windows: int | None = 1) -> int:
        """How many tokens a table of that size has room for. num_windows: as for bytes_for()."""
        keep_all = (group for group in self.groups if group.window is None and not group.is_state)
        most = (group.memory.num_blocks for group in keep_all)
        counts = range(min(most, default=_MOST_BLOCKS) + 1)

        def size_of(num_blocks: int) -> int:
            return self.bytes_for(num_blocks * BLOCK_TOKENS, num_windows)

        return (bisect_right(counts, num_bytes, key=size_of) - 1) * BLOCK_TOKENS

    @property
    def used_bytes(self) -> int:
        """In blocks that tables or sessions hold."""
        return sum(pool.num_used * memory.block_bytes for pool, memory, *_ in self.groups)

    @property
    def cached_bytes(self) -> int:
        """In blocks that are not held, but can be found by later sequences."""
        return sum(pool.num_cached * memory.block_bytes for pool, memory, *_ in self.groups)

    @property
    def committed_bytes(self) -> int:
        return sum(
            (_num_extents(memory) - pool.num_uncommitted) * memory.extent_bytes
            for pool, memory, *_ in self.groups
        )

    @property
    def reserved_bytes(self) -> int:
        """Address space."""
        return sum(_num_extents(memory) * memory.extent_bytes for _, memory, *_ in self.groups)

    @property
    def spare_bytes(self) -> int:
        """Memory that trim() would give back."""
        return self._supply.spare_bytes

    @property
    def reclaimable_bytes(self) -> int:
        """Memory that trim() would give back if all that is cached were evicted."""
        if self._supply.is_static:
            return 0
        return sum(pool.num_unused * memory.extent_bytes for pool, memory, *_ in self.groups)

    @property
    def available_bytes(self) -> int:
        """That tables could take now."""
        free = ((pool.num_spare + pool.num_cached) * memory.block_bytes for pool, memory, *_ in self.groups)
        return sum(free) + self._supply.fresh_bytes

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
        return self._coarse_bytes > 0 and self._is_too_coarse_for(self._limit_bytes)

    @property
    def must_shrink(self) -> bool:
        """Whether freed memory goes elsewhere: a limit is exceeded, or a guarantee of others unmet."""
        return not self._supply.is_static and self._budget.debt_bytes > 0

    def keep_extents(self) -> None:
        """From now on it is never too coarse: there is no address space for finer extents."""
        self._coarse_bytes = 0

    def is_guaranteed(self, num_bytes: int) -> bool:
        """Whether so many more bytes are within what is guaranteed to the model."""
        return self.used_bytes + num_bytes <= self._budget.guaranteed_bytes(self)

    def unguaranteed_bytes(self, num_bytes: int) -> int:
        """The part of so many more bytes that is beyond the guarantee."""
        return max(num_bytes - max(self._budget.guaranteed_bytes(self) - self.used_bytes, 0), 0)

    def gives_to(self, other: ModelKv) -> bool:
        """Whether `other` gains by what this one gives back."""
        is_above = self.committed_bytes > self._budget.guaranteed_bytes(self)
        return is_above and not (self._supply.is_static or other._supply.is_static)

    def competes_with(self, other: ModelKv) -> bool:
        """Whether both take their memory from the same budget."""
        return self is other or not (self._supply.is_static or other._supply.is_static)

    def is_all_held_by(self, table: SequenceTable) -> bool:
        """Whether no other table has memory in use, in any model."""
        return self.used_bytes == table.held_bytes and self._budget.held_bytes(besides=self) == 0

    def describe_need(self, num_bytes: int) -> str:
        """For users: why there is not so much memory."""
        needed = f"needs {binary_size(num_bytes)} of KV memory"
        if self._supply.is_refused:
            return f"{needed}, more than the device has left"
        taken = "" if self._supply.is_static else self._budget.taken_for_long(self)
        text = f"{needed}, the limits leave it {binary_size(self.most_bytes)}"
        return f"{text}: {taken}" if taken else text

    def make_static(self) -> None:
        """Brings memory for every block, now, and keeps it. Raises DeviceOutOfMemory."""
        self._supply.make_static()

    def oldest_release(self) -> int | None:
        """When what evict() would begin with was released, by the budget's clock; None: there is nothing."""
        return self._supply.oldest_release()

    def evict(self, num_bytes: int, before: int | None) -> None:
        """See Reclaimable."""
        self._supply.evict(num_bytes, before)

    def trim(self, num_bytes: int | None = None) -> bool:
        """See Reclaimable."""
        return self._supply.trim(num_bytes)

    def drop_cached(self) -> bool:
        """Makes what is cached spare; False: that was all. Much of it takes several calls."""
        return self.blocks.drop_cached(SLICE)

    def close(self) -> None:
        """Gives everything back. Nobody holds any of it."""
        num_used = sum(pool.num_used for pool, *_ in self.groups)
        assert num_used == 0, f"close with {num_used} blocks in use"
        self._budget.release(self.committed_bytes)
        self._budget.leave(self)
        for _, memory, *_ in self.groups:
            memory.close()

    def group_stats(self) -> list[GroupStats]:
        return [
            GroupStats(
                group.window,
                group.memory.block_bytes,
                group.pool.num_used,
                group.pool.num_cached,
                group.pool.num_spare,
                group.is_state,
            )
            for group in self.groups
        ]

    def check(self) -> None:
        """Asserts that its books are right."""
        self.blocks.check()

    @property
    def _limit_bytes(self) -> int:
        return self._budget.most_bytes(self) - self._budget.leased_bytes

    def _usable_bytes(self, num_bytes: int) -> int:
        """The part of it that blocks could fill: whole extents, if these are not too coarse for it."""
        if self._supply.is_static:
            return sum(memory.num_blocks * memory.block_bytes for _, memory, *_ in self.groups)
        if not self.groups:
            return 0
        num_bytes = min(max(num_bytes, 0), self.reserved_bytes)
        if self._is_too_coarse_for(num_bytes):
            return num_bytes
        if len(self.groups) > 1:
            left = max(num_bytes - sum(map(_most_unused, self.groups)), 0)
            return min(
                left * m.extent_blocks * m.block_bytes // m.extent_bytes
                for _, m, _, is_state in self.groups
                if not is_state
            )
        memory = self.groups[0].memory
        num_blocks = min(num_bytes // memory.extent_bytes * memory.extent_blocks, memory.num_blocks)
        return num_blocks * memory.block_bytes

    def _is_too_coarse_for(self, num_bytes: int) -> bool:
        return num_bytes < self._coarse_bytes and not self._supply.is_static


def _most_unused(group: BlockGroup) -> int:
    """Bytes of extents that a sequence mostly leaves unused at most: of one; a window may lie in two more."""
    memory = group.memory
    num_extents = 1 if group.window is None or memory.extent_blocks == 1 else 3
    return num_extents * memory.extent_bytes - memory.block_bytes


def _num_extents(memory: BlockMemory) -> int:
    return -(-memory.num_blocks // memory.extent_blocks)


def _most_held(group: BlockGroup, num_windows: int | None) -> int:
    """Blocks of one sequence. num_windows: see ModelKv.bytes_for()."""
    if group.is_state:
        return 1
    window = group.window
    if window is None or num_windows is None:
        return _MOST_BLOCKS
    # At worst a window begins with the last token of a block, and what moves begins within one.
    return num_windows * ((window + BLOCK_TOKENS - 2) // BLOCK_TOKENS + 1) + num_windows - 1
