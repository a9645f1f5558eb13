"""Two limits: on the KV memory of all models together, and on that and their weights."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterable

import msgspec

from puna.config.sizes import binary_size
from puna.kv.reclaimable import Reclaimable, evict_oldest_of, held_bytes


class Shortage(msgspec.Struct, frozen=True):
    """Why a model does not fit; all in bytes. Who holds the rest is in the engine's statistics."""

    needed_bytes: int
    """Weights, and the least KV memory it can do with."""
    limit_bytes: int
    taken_bytes: int
    """By others, without what they can do without."""
    is_of_kv: bool = False
    """It is the limit on KV memory that is too low: then needed_bytes is without the weights."""


class Budget:
    """Counts what is committed, leased and taken by weights. Memory that one pool can do without is there for
    all, except for what a pool is sure of: its minimum, which others neither commit nor evict into.

    When a limit is lowered below what is in use, nothing more is committed until that is below it; and when a
    pool becomes sure of what others use, these commit nothing more until they have given that up.
    """

    def __init__(self, kv_limit_bytes: int, memory_limit_bytes: int = sys.maxsize) -> None:
        """kv_limit_bytes: of what pools commit and others lease; memory_limit_bytes: of that and weights."""
        self.kv_limit_bytes = kv_limit_bytes
        self.memory_limit_bytes = memory_limit_bytes
        self.committed_bytes = 0
        """By all pools."""
        self.num_releases = 0
        """How often pools have given memory back to their device."""
        self.leased_bytes = 0
        """By those who have no pool."""
        self.weight_bytes = 0
        """Of the models that are awake."""
        self._pools: list[Reclaimable] = []
        self._minimums: dict[Reclaimable, int] = {}  # of those that have one
        self._assured: dict[Reclaimable, int] = {}  # the minimums, or less if they exceed the limits
        self._ticks = itertools.count()

    @property
    def limit_bytes(self) -> int:
        """For what is committed and leased now."""
        return min(self.kv_limit_bytes, self.memory_limit_bytes - self.weight_bytes)

    @property
    def are_weights_in_the_way(self) -> bool:
        """Whether KV could take more if there were fewer."""
        return self.memory_limit_bytes - self.weight_bytes < self.kv_limit_bytes

    @property
    def excess_bytes(self) -> int:
        """By how much what is there exceeds a limit that was lowered."""
        return max(self.committed_bytes + self.leased_bytes - self.limit_bytes, 0)

    @property
    def debt_bytes(self) -> int:
        """The same, and by how much others have what pools are sure of."""
        return max(-self.free_bytes(None), 0)

    @property
    def reclaimable_bytes(self) -> int:
        """What all pools together could do without."""
        return sum(pool.reclaimable_bytes for pool in self._pools)

    def join(self, pool: Reclaimable) -> None:
        self._pools.append(pool)

    def leave(self, pool: Reclaimable) -> None:
        self._pools.remove(pool)
        self.set_minimum(pool, 0)

    def tick(self) -> int:
        """The time, for comparing when blocks of different pools were released."""
        return next(self._ticks)

    def set_limits(self, kv_limit_bytes: int, memory_limit_bytes: int) -> None:
        """Usable at once. What exceeds a lower one goes as far as it is spare or cached: see excess_bytes."""
        self.kv_limit_bytes = kv_limit_bytes
        self.memory_limit_bytes = memory_limit_bytes
        self._share_out()
        self.shrink()

    def set_minimum(self, pool: Reclaimable, num_bytes: int) -> None:
        """Rounded up to whole extents; what others have of it makes room where it can. See shortage()."""
        if num_bytes:
            self._minimums[pool] = -(-num_bytes // pool.extent_bytes) * pool.extent_bytes
        else:
            self._minimums.pop(pool, None)
        self._share_out()
        self.shrink()

    def minimum_bytes(self, pool: Reclaimable) -> int:
        return self._minimums.get(pool, 0)

    def assured_bytes(self, pool: Reclaimable) -> int:
        """The pool's minimum; less where limits were lowered below the sum of all."""
        return self._assured.get(pool, 0)

    def most_bytes(self, pool: Reclaimable | None) -> int:
        """What the pool (None: a new one) could have if no other used more than its minimum, and all leases
        ended.
        """
        return max(self.limit_bytes - self._assured_to_others(pool), 0)

    def taken_for_long(self, pool: Reclaimable) -> str:
        """Who has what of the KV limit, for users, as far as it is not the pool's for a time unknown."""
        limit = self.memory_limit_bytes - self.weight_bytes
        taken = {
            "are leased to others": self.leased_bytes,
            "are what other models are sure of": self._assured_to_others(pool),
            "are weights": self.weight_bytes if limit < self.kv_limit_bytes else 0,
        }
        return " and ".join(f"{binary_size(size)} {what}" for what, size in taken.items() if size)

    def free_bytes(self, asking: Reclaimable | None) -> int:
        """What `asking` (None: somebody without a pool) could commit now; negative while there is debt."""
        promised = sum(
            max(assured - pool.committed_bytes, 0)
            for pool, assured in self._assured.items()
            if pool is not asking
        )
        return self.limit_bytes - self.committed_bytes - self.leased_bytes - promised

    def available_bytes(self, asking: Reclaimable | None) -> int:
        """What `asking` could commit, besides the memory it can do without itself."""
        given = (min(p.reclaimable_bytes, self._above_minimum(p)) for p in self._others(asking))
        return self.free_bytes(asking) + sum(given)

    def uncached_bytes(self, asking: Reclaimable | None) -> int:
        """What `asking` could commit, besides its own spare memory, without anything being evicted."""
        given = (min(p.spare_bytes, self._above_minimum(p)) for p in self._others(asking))
        return self.free_bytes(asking) + sum(given)

    def oldest_release(self, asking: Reclaimable | None) -> int | None:
        """When what evict_oldest() would evict was released; None: there is nothing."""
        times = (pool.oldest_release() for pool in self._evictable(asking))
        return min((time for time in times if time is not None), default=None)

    def evict_oldest(self, asking: Reclaimable | None) -> None:
        """Makes memory of another pool spare: what was used longest ago, and is above its minimum."""
        evicted = evict_oldest_of(self._evictable(asking))
        assert evicted, "there is nothing to evict"

    def commit(self, num_bytes: int, asking: Reclaimable) -> None:
        """Counts `num_bytes`, at most uncached_bytes(asking), as committed; first takes as much of the other
        pools' spare memory as that needs.
        """
        self._free(num_bytes, asking)
        self.committed_bytes += num_bytes

    def uncommit(self, num_bytes: int) -> None:
        """Undoes commit(): the device had no memory."""
        self.committed_bytes -= num_bytes

    def give_back(self, asking: Reclaimable) -> bool:
        """Has others return memory to the device: what is spare, or else the oldest content. False: there is
        none.
        """
        others = list(self._others(asking))
        if not any(pool.spare_bytes for pool in others) and not evict_oldest_of(self._evictable(asking)):
            return False
        for pool in others:
            pool.trim()
        return True

    def release(self, num_bytes: int) -> None:
        assert 0 <= num_bytes <= self.committed_bytes, (
            f"release of {num_bytes} of {self.committed_bytes} bytes"
        )
        self.committed_bytes -= num_bytes
        self.num_releases += 1

    def count_lease(self, num_bytes: int) -> None:
        """Of memory that somebody without a pool has already, whatever the limits are."""
        self.leased_bytes += num_bytes
        self._share_out()
        self.shrink()

    def lease(self, num_bytes: int) -> bool:
        """Takes memory for somebody without a pool: what is free, spare or cached above the minimums.

        False, and nothing taken, if there is not that much.
        """
        if num_bytes > self.available_bytes(None):
            return False
        while self.uncached_bytes(None) < num_bytes:
            self.evict_oldest(None)
        self._free(num_bytes, None)
        self.leased_bytes += num_bytes
        return True

    def end_lease(self, num_bytes: int) -> None:
        assert 0 <= num_bytes <= self.leased_bytes, f"end of {num_bytes} of {self.leased_bytes} leased bytes"
        self.leased_bytes -= num_bytes
        self._share_out()

    def held_bytes(self, besides: Reclaimable) -> int:
        """What other pools cannot do without."""
        return sum(map(held_bytes, self._others(besides)))

    def shortage(self, pool: Reclaimable, weight_bytes: int, minimum_bytes: int) -> Shortage | None:
        """Whether a model fits, beside what others cannot do without; pool: its own."""
        kv_bytes = max(minimum_bytes, pool.extent_bytes, held_bytes(pool))
        others = [other for other in self._pools if other is not pool]
        sure = self.leased_bytes + sum(map(self.minimum_bytes, others))
        if sure + kv_bytes > self.kv_limit_bytes:
            return Shortage(kv_bytes, self.kv_limit_bytes, sure, is_of_kv=True)
        held = (max(held_bytes(other), self.minimum_bytes(other)) for other in others)
        taken = self.weight_bytes + self.leased_bytes + sum(held)
        if taken + weight_bytes + kv_bytes > self.memory_limit_bytes:
            return Shortage(weight_bytes + kv_bytes, self.memory_limit_bytes, taken)
        return None

    def add_weights(self, num_bytes: int) -> None:
        """Of a model that is awake now; what is spare or cached makes room."""
        self.weight_bytes += num_bytes
        self._share_out()
        self.shrink()

    def remove_weights(self, num_bytes: int) -> None:
        assert 0 <= num_bytes <= self.weight_bytes, f"{num_bytes} of {self.weight_bytes} bytes of weights"
        self.weight_bytes -= num_bytes
        self._share_out()

    def shrink(self) -> None:
        """Pays debts as far as memory is spare or cached; what pools are sure of goes last, and only where
        limits are exceeded.
        """
        while self.uncached_bytes(None) < 0 and evict_oldest_of(self._evictable(None)):
            pass
        while self.excess_bytes > self._spare_bytes() and evict_oldest_of(self._pools):
            pass
        for pool in self._pools:
            if self.debt_bytes:
                pool.trim()

    def trim(self) -> None:
        """Gives all spare memory back to the system."""
        for pool in self._pools:
            pool.trim()

    def check(self) -> None:
        """The sums are right, and what is promised can be kept."""
        assert self.committed_bytes == sum(pool.committed_bytes for pool in self._pools), "committed bytes"
        assert self.leased_bytes >= 0 <= self.weight_bytes, "leases and weights"
        room = max(self.limit_bytes - self.leased_bytes, 0)
        assert sum(self._assured.values()) <= room, "more is promised than there is"

    def evict_older_half(self) -> None:
        """Makes half of the cached content spare, what was used longest ago."""
        wanted = self._cached_bytes() // 2
        while self._cached_bytes() > wanted and evict_oldest_of(self._pools):
            pass

    def _free(self, num_bytes: int, asking: Reclaimable | None) -> None:
        """Trims other pools until so much is free; there is that much without evicting anything."""
        for pool in self._others(asking):
            if self.free_bytes(asking) >= num_bytes:
                break
            pool.trim()
        assert self.free_bytes(asking) >= num_bytes, f"{num_bytes} bytes are more than is free"

    def _share_out(self) -> None:
        """What each pool is sure of: its minimum, or its share of what there is for all."""
        room, total = max(self.limit_bytes - self.leased_bytes, 0), sum(self._minimums.values())
        self._assured = {
            pool: minimum
            if total <= room
            else minimum * room // total // pool.extent_bytes * pool.extent_bytes
            for pool, minimum in self._minimums.items()
        }

    def _above_minimum(self, pool: Reclaimable) -> int:
        return max(pool.committed_bytes - self.assured_bytes(pool), 0)

    def _assured_to_others(self, pool: Reclaimable | None) -> int:
        return sum(assured for other, assured in self._assured.items() if other is not pool)

    def _others(self, asking: Reclaimable | None) -> Iterable[Reclaimable]:
        return (pool for pool in self._pools if pool is not asking)

    def _evictable(self, asking: Reclaimable | None) -> list[Reclaimable]:
        """Those of which others gain by an eviction."""
        return [pool for pool in self._others(asking) if self._above_minimum(pool) > pool.spare_bytes]

    def _spare_bytes(self) -> int:
        return sum(pool.spare_bytes for pool in self._pools)

    def _cached_bytes(self) -> int:
        return sum(pool.reclaimable_bytes - pool.spare_bytes for pool in self._pools)
