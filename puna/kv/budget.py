"""One limit on the KV memory of all models together."""

from __future__ import annotations

import itertools
from operator import attrgetter
from typing import Protocol


class Reclaimable(Protocol):
    """A pool that holds memory it can do without."""

    @property
    def spare_bytes(self) -> int:
        """Of free blocks without content."""

    @property
    def cached_bytes(self) -> int:
        """Of free blocks whose content can still be found."""

    @property
    def oldest_release(self) -> int:
        """When the cached block released first was released, by Budget.tick(). There must be one."""

    def evict(self) -> None:
        """Makes the cached block released first spare."""

    def trim(self) -> None:
        """Gives spare memory back, through Budget.release()."""


class Budget:
    """Counts committed bytes against `limit_bytes`. Memory that one pool can do without is there for all."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.committed_bytes = 0
        self._pools: list[Reclaimable] = []
        self._ticks = itertools.count()

    def join(self, pool: Reclaimable) -> None:
        self._pools.append(pool)

    def leave(self, pool: Reclaimable) -> None:
        self._pools.remove(pool)

    def tick(self) -> int:
        """The time, for comparing when blocks of different pools were released."""
        return next(self._ticks)

    def available_bytes(self, asking: Reclaimable) -> int:
        """What `asking` could commit, besides the memory it can do without itself."""
        return self.uncached_bytes(asking) + sum(
            pool.cached_bytes for pool in self._pools if pool is not asking
        )

    def uncached_bytes(self, asking: Reclaimable) -> int:
        """What `asking` could commit, besides its own spare memory, without anything being evicted."""
        spare = sum(pool.spare_bytes for pool in self._pools if pool is not asking)
        return self.limit_bytes - self.committed_bytes + spare

    def evict_oldest(self) -> None:
        """Evicts the cached block that was released first, of any pool."""
        min((pool for pool in self._pools if pool.cached_bytes), key=attrgetter("oldest_release")).evict()

    def commit(self, num_bytes: int, asking: Reclaimable) -> None:
        """Counts `num_bytes`, at most uncached_bytes(asking), as committed; first takes as much of the other
        pools' spare memory as that needs.
        """
        for pool in self._pools:
            if self.committed_bytes + num_bytes <= self.limit_bytes:
                break
            if pool is not asking:
                pool.trim()
        self.committed_bytes += num_bytes
        assert self.committed_bytes <= self.limit_bytes, (
            f"{self.committed_bytes} bytes committed, more than the limit of {self.limit_bytes}"
        )

    def release(self, num_bytes: int) -> None:
        assert 0 <= num_bytes <= self.committed_bytes, (
            f"release of {num_bytes} of {self.committed_bytes} bytes"
        )
        self.committed_bytes -= num_bytes
