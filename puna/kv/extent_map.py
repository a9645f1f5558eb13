"""Which extents of a pool have memory, and what is on them."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable


class ExtentMap:
    """Counts each extent's blocks by state. Extents are runs of `extent_blocks` blocks."""

    def __init__(self, num_blocks: int, extent_blocks: int) -> None:
        self.extent_blocks = extent_blocks
        self.num_unused = 0
        """Committed extents without blocks in use."""
        self._empty: set[int] = set()
        self._num_blocks = num_blocks
        self.num_extents = -(-num_blocks // extent_blocks)
        # Extents from len(self._used) on were never committed; the lists grow as they are.
        self._used: list[int] = []
        self._cached: list[int] = []
        self._touched: list[int] = []
        """When a block of the extent was last cached."""
        self._uncommitted: list[int] = []  # of those that were, a heap
        self._is_committed: list[bool] = []
        # (when touched, extent) of those with cached blocks and none in use: a heap, with entries that are
        # no longer true.
        self._unused: list[tuple[int, int]] = []

    @property
    def num_empty(self) -> int:
        """Committed extents with spare blocks only."""
        return len(self._empty)

    @property
    def num_committed(self) -> int:
        return len(self._used) - len(self._uncommitted)

    @property
    def num_uncommitted(self) -> int:
        return self.num_extents - self.num_committed

    def blocks(self, extent: int) -> range:
        first = extent * self.extent_blocks
        return range(first, min(first + self.extent_blocks, self._num_blocks))

    def for_blocks(self, num_blocks: int) -> int:
        """Extents that have so many blocks."""
        return -(-num_blocks // self.extent_blocks)

    def num_blocks_of(self, num_extents: int) -> int:
        """Blocks that so many uncommitted extents, or all there are, are sure to have."""
        if num_extents >= self.num_uncommitted:
            short = self.num_extents * self.extent_blocks - self._num_blocks
            has_last = not self._is_committed_extent(self.num_extents - 1)
            return self.num_uncommitted * self.extent_blocks - (short if has_last else 0)
        return num_extents * self.extent_blocks

    def is_committed(self, block: int) -> bool:
        return self._is_committed_extent(block // self.extent_blocks)

    def commit(self, num_extents: int) -> list[int]:
        """The lowest uncommitted ones; there are that many."""
        extents = []
        for _ in range(num_extents):
            if self._uncommitted:
                extent = heapq.heappop(self._uncommitted)
                self._is_committed[extent] = True
            else:
                extent = len(self._used)
                self._used.append(0)
                self._cached.append(0)
                self._touched.append(-1)
                self._is_committed.append(True)
            extents.append(extent)
        self._empty.update(extents)
        self.num_unused += num_extents
        return extents

    def take_back(self, extents: list[int]) -> None:
        """Undoes commit(), of extents that nobody has used."""
        self._empty.difference_update(extents)
        self._uncommit(extents)

    def take_empty(self) -> list[int]:
        """All empty extents; they are uncommitted from now on."""
        empty = sorted(self._empty)
        self._empty.clear()
        self._uncommit(empty)
        return empty

    def oldest_unused(self) -> tuple[int, int | None]:
        """(extent, when) of those with cached blocks and none in use: the one touched last longest ago."""
        while self._unused:
            when, extent = self._unused[0]
            if self._is_unused(extent) and self._touched[extent] == when:
                return extent, when
            heapq.heappop(self._unused)
        return -1, None

    def spare_used(self, block: int) -> None:
        extent = block // self.extent_blocks
        if self._used[extent] == 0:
            self.num_unused -= 1
            self._empty.discard(extent)
        self._used[extent] += 1

    def cached_used(self, block: int) -> None:
        extent = block // self.extent_blocks
        if self._used[extent] == 0:
            self.num_unused -= 1
        self._used[extent] += 1
        self._cached[extent] -= 1

    def used_cached(self, block: int, now: int) -> None:
        extent = block // self.extent_blocks
        self._used[extent] -= 1
        self._cached[extent] += 1
        self._touched[extent] = now
        if self._used[extent] == 0:
            self._became_unused(extent)

    def used_spare(self, block: int) -> None:
        extent = block // self.extent_blocks
        self._used[extent] -= 1
        if self._used[extent] == 0:
            self._became_unused(extent)

    def cached_spare(self, block: int) -> None:
        extent = block // self.extent_blocks
        self._cached[extent] -= 1
        if self._used[extent] == self._cached[extent] == 0:
            self._empty.add(extent)

    def check(self, used: Iterable[int], cached: Iterable[int], spare: Iterable[int]) -> None:
        """All counts are right, and every block of a committed extent is in exactly one of these states."""
        num_used = Counter(block // self.extent_blocks for block in used)
        num_cached = Counter(block // self.extent_blocks for block in cached)
        num_spare = Counter(block // self.extent_blocks for block in spare)
        for extent, committed in enumerate(self._is_committed):
            assert self._used[extent] == num_used[extent], f"extent {extent}: used"
            assert self._cached[extent] == num_cached[extent], f"extent {extent}: cached"
            known = num_used[extent] + num_cached[extent] + num_spare[extent]
            assert known == (len(self.blocks(extent)) if committed else 0), f"extent {extent}: a block leaked"
        unused = [e for e, committed in enumerate(self._is_committed) if committed and not num_used[e]]
        assert self.num_unused == len(unused), "unused extents"
        assert self._empty == {extent for extent in unused if not num_cached[extent]}, "empty extents"
        oldest = min(((self._touched[e], e) for e in unused if num_cached[e]), default=(None, -1))
        assert self.oldest_unused() == oldest[::-1], "oldest extent"
        assert len(self._used) <= self.num_extents, "more extents than there are"

    def _uncommit(self, extents: list[int]) -> None:
        for extent in extents:
            self._is_committed[extent] = False
            heapq.heappush(self._uncommitted, extent)
        self.num_unused -= len(extents)

    def _became_unused(self, extent: int) -> None:
        self.num_unused += 1
        if self._cached[extent] == 0:
            self._empty.add(extent)
            return
        if len(self._unused) > 2 * len(self._used) + 64:
            self._unused = [(self._touched[e], e) for e in range(len(self._used)) if self._is_unused(e)]
            heapq.heapify(self._unused)
        heapq.heappush(self._unused, (self._touched[extent], extent))

    def _is_unused(self, extent: int) -> bool:
        """And has cached blocks."""
        return self._used[extent] == 0 < self._cached[extent]

    def _is_committed_extent(self, extent: int) -> bool:
        return extent < len(self._is_committed) and self._is_committed[extent]
