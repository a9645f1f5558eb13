"""One limit on the KV memory of all models together."""

from __future__ import annotations

import itertools
from typing import Protocol

import msgspec


class Shortage(msgspec.Struct, frozen=True):
    """Why a model does not fit; all in bytes. Who holds the rest is in the engine's statistics."""

    needed_bytes: int
    """Weights, and the least KV memory it can do with."""
    limit_bytes: int
    taken_bytes: int
    """By others, without what they can do without."""
    is_of_kv: bool = False
    """It is the limit on KV memory that is too low: then needed_bytes is without the weights."""


class Reclaimable(Protocol):
    """A pool that holds memory it can do without."""

    @property
    def spare_bytes(self) -> int:
        """Memory that trim() would give back."""

    @property
    def reclaimable_bytes(self) -> int:
        """Memory that trim() would give back after enough calls of evict_extent(), the spare included."""

    def oldest_release(self) -> int | None:
        """When what evict_extent() would evict was released, by Budget.tick(); None: there is nothing."""

    def evict_extent(self) -> None:
        """Drops the content that was used longest ago, and makes its memory spare."""

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
        return (
            self.limit_bytes - self.committed_bytes + sum(p.reclaimable_bytes for p in self._others(asking))
        )

    def uncached_bytes(self, asking: Reclaimable) -> int:
        """What `asking` could commit, besides its own spare memory, without anything being evicted."""
        return self.limit_bytes - self.committed_bytes + sum(p.spare_bytes for p in self._others(asking))

    def oldest_release(self, asking: Reclaimable) -> int | None:
        """When what evict_oldest() would evict was released; None: there is nothing."""
        times = (pool.oldest_release() for pool in self._others(asking))
        return min((time for time in times if time is not None), default=None)

    def evict_oldest(self, asking: Reclaimable) -> None:
        """Makes memory of another pool spare: what was used longest ago."""
        oldest = self.oldest_release(asking)
        next(pool for pool in self._others(asking) if pool.oldest_release() == oldest).evict_extent()

    def commit(self, num_bytes: int, asking: Reclaimable) -> None:
        """Counts `num_bytes`, at most uncached_bytes(asking), as committed; first takes as much of the other
        pools' spare memory as that needs.
        """
        for pool in self._others(asking):
            if self.committed_bytes + num_bytes <= self.limit_bytes:
                break
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

    def _others(self, asking: Reclaimable) -> list[Reclaimable]:
        return [pool for pool in self._pools if pool is not asking]
