"""What the budget needs of the pools that share it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Reclaimable(Protocol):
    """A pool that holds memory it can do without, in extents."""

    @property
    def committed_bytes(self) -> int: ...
    @property
    def extent_bytes(self) -> int:
        """What the pool commits and gives back are multiples of this."""

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


def held_bytes(pool: Reclaimable) -> int:
    """What the pool cannot do without."""
    return pool.committed_bytes - pool.reclaimable_bytes


def evict_oldest_of(pools: Sequence[Reclaimable]) -> bool:
    """False: nothing is cached."""
    oldest, first = None, None
    for pool in pools:
        when = pool.oldest_release()
        if when is not None and (oldest is None or when < oldest):
            oldest, first = when, pool
    if first is None:
        return False
    first.evict_extent()
    return True
