"""The interface of pools to the budget that they share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class Reclaimable(Protocol):
    """A pool that holds memory it can do without, in extents."""

    @property
    def committed_bytes(self) -> int: ...
    @property
    def extent_bytes(self) -> int:
        """The least that it can be guaranteed to be of use: one extent of each kind."""

    @property
    def spare_bytes(self) -> int:
        """Memory that trim() would give back."""

    @property
    def reclaimable_bytes(self) -> int:
        """Memory that trim() would give back after enough calls of evict(), the spare included."""

    def oldest_release(self) -> int | None:
        """When what evict() would begin with was released, by Budget.clock; None: there is nothing."""

    def evict(self, num_bytes: int, before: int | None) -> None:
        """Drops content that was used longest ago, and makes its memory spare: an extent, and more of them as
        long as less than num_bytes were, and they were released before a time of Budget.clock. Not too many
        at once.
        """

    def trim(self, num_bytes: int | None = None) -> bool:
        """Gives spare memory back, through Budget.release(): at least so much; None: all. True: there is more
        to do, which was too much for one call.
        """


def held_bytes(pool: Reclaimable) -> int:
    """Memory that the pool cannot do without."""
    return pool.committed_bytes - pool.reclaimable_bytes


def evict_oldest_of(pools: Mapping[Reclaimable, int], num_bytes: int, before: int | None = None) -> bool:
    """Evicts what was used longest ago: about so many bytes, or fewer, of one pool, as long as it was
    released before a tick of the budget's clock.

    pools: and how much of each at most, or an extent. False: nothing is cached.
    """
    times = ((pool.oldest_release(), pool) for pool in pools)
    by_age = sorted(((when, i, pool) for i, (when, pool) in enumerate(times) if when is not None))
    if not by_age:
        return False
    _, _, oldest = by_age[0]
    ticks = [tick for tick in (before, *(when for when, *_ in by_age[1:2])) if tick is not None]
    oldest.evict(min(num_bytes, pools[oldest]), min(ticks, default=None))
    return True
