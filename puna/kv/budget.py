"""Two limits: on the KV memory of all models together, and on that and their weights."""

from __future__ import annotations

import sys
from collections.abc import Iterable

import msgspec

from puna._native import ReleaseClock
from puna.config.sizes import binary_size
from puna.kv.limits import NOTHING, Limits
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
    all, except for what is guaranteed to a pool, which others neither commit nor evict into.

    When a limit is lowered below what is in use, nothing more is committed until that is below it; and when a
    pool is guaranteed what others use, these commit nothing more until they have given that up.
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
        """By others than pools."""
        self.weight_bytes = 0
        """Of the models that are awake."""
        self.elsewhere = NOTHING
        """By how much other engines may let the limits be raised."""
        self._pools: list[Reclaimable] = []
        self._guarantees: dict[Reclaimable, int] = {}  # of those that have one
        self._guaranteed: dict[Reclaimable, int] = {}  # the same, or less if they exceed the limits
        self.clock = ReleaseClock()
        """Ticks by which releases are ordered, to evict what was used longest ago."""
        self.limit_bytes = 0
        """For what is committed and leased now."""
        self._share_out()

    @property
    def limits(self) -> Limits:
        return Limits(self.kv_limit_bytes, self.memory_limit_bytes)

    @property
    def slack(self) -> Limits:
        """By how much each limit could be lower with nothing given up; negative where it is exceeded."""
        free, limit = self.free_bytes(None), self.limit_bytes
        return (self.limits - Limits(0, self.weight_bytes)).plus(free - limit)

    @property
    def are_weights_in_the_way(self) -> bool:
        """Whether KV could take more if there were fewer."""
        return self.memory_limit_bytes - self.weight_bytes < self.kv_limit_bytes

    @property
    def excess_bytes(self) -> int:
        """By how much what is there exceeds a limit that was lowered."""
        return max(self.committed_bytes + self.leased_bytes - self.limit_bytes, 0)

    @property
    def taken(self) -> Limits:
        """Memory that counts against each limit."""
        return Limits(0, self.weight_bytes).plus(self.committed_bytes + self.leased_bytes)

    @property
    def debt_bytes(self) -> int:
        """The same, and by how much pools have what is guaranteed to others."""
        return max(-self.free_bytes(None), 0)

    @property
    def reclaimable_bytes(self) -> int:
        """Memory that all pools together could do without."""
        return sum(pool.reclaimable_bytes for pool in self._pools)

    def join(self, pool: Reclaimable) -> None:
        self._pools.append(pool)

    def leave(self, pool: Reclaimable) -> None:
        self._pools.remove(pool)
        self.set_guarantee(pool, 0)

    def set_limits(self, kv_limit_bytes: int, memory_limit_bytes: int) -> None:
        """Usable at once. What exceeds a lower one goes as far as it is spare or cached: see excess_bytes."""
        self.kv_limit_bytes = kv_limit_bytes
        self.memory_limit_bytes = memory_limit_bytes
        self._share_out()
        self.shrink()

    def set_guarantee(self, pool: Reclaimable, num_bytes: int) -> None:
        """Rounded up to whole extents; what others have of it makes room where it can. See shortage()."""
        if num_bytes:
            self._guarantees[pool] = -(-num_bytes // pool.extent_bytes) * pool.extent_bytes
        else:
            self._guarantees.pop(pool, None)
        self._share_out()
        self.shrink()

    def guarantee_bytes(self, pool: Reclaimable) -> int:
        return self._guarantees.get(pool, 0)

    def guaranteed_bytes(self, pool: Reclaimable) -> int:
        """The pool's guarantee; less where limits were lowered below the sum of all."""
        return self._guaranteed.get(pool, 0)

    def most_bytes(self, pool: Reclaimable | None) -> int:
        """Memory that the pool (None: a new one) could have if others used no more than their guarantees,
        and all leases ended.
        """
        return max(self.limit_bytes - self._guaranteed_to_others(pool), 0)

    def taken_for_long(self, pool: Reclaimable) -> str:
        """For users: memory of the KV limit that the pool will not get for an unknown time, by holder."""
        limit = self.memory_limit_bytes - self.weight_bytes
        taken = {
            "are leased to others": self.leased_bytes,
            "are guaranteed to other models": self._guaranteed_to_others(pool),
            "are weights": self.weight_bytes if limit < self.kv_limit_bytes else 0,
        }
        return " and ".join(f"{binary_size(size)} {what}" for what, size in taken.items() if size)

    def free_bytes(self, asking: Reclaimable | None) -> int:
        """Memory that `asking` (None: others than pools) could commit now; negative while there is debt."""
        free = self.limit_bytes - self.committed_bytes - self.leased_bytes
        if not self._guaranteed:  # mostly
            return free
        return free - sum(
            max(guaranteed - pool.committed_bytes, 0)
            for pool, guaranteed in self._guaranteed.items()
            if pool is not asking
        )

    def available_bytes(self, asking: Reclaimable | None) -> int:
        """Memory that `asking` could commit, besides the memory that it can do without itself."""
        given = (min(p.reclaimable_bytes, self._above_guarantee(p)) for p in self._others(asking))
        return self.free_bytes(asking) + sum(given)

    def uncached_bytes(self, asking: Reclaimable | None) -> int:
        """Memory that `asking` could commit without evictions, besides its own spare memory."""
        given = (min(p.spare_bytes, self._above_guarantee(p)) for p in self._others(asking))
        return self.free_bytes(asking) + sum(given)

    def oldest_release(self, asking: Reclaimable | None) -> int | None:
        """When what evict_oldest() would evict was released; None: there is nothing."""
        times = (pool.oldest_release() for pool in self._evictable(asking))
        return min((time for time in times if time is not None), default=None)

    def evict_oldest(self, asking: Reclaimable | None, num_bytes: int = 1, before: int | None = None) -> None:
        """Makes memory of another pool spare: what was used longest ago, and is above its guarantee. About so
        much, or less of it, that was released before a tick of the clock.
        """
        evicted = evict_oldest_of(self._evictable(asking), num_bytes, before)
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
        if not any(pool.spare_bytes for pool in others) and not evict_oldest_of(self._evictable(asking), 1):
            return False
        for pool in others:
            while pool.trim():
                pass
        return True

    def release(self, num_bytes: int) -> None:
        assert 0 <= num_bytes <= self.committed_bytes, (
            f"release of {num_bytes} of {self.committed_bytes} bytes"
        )
        self.committed_bytes -= num_bytes
        self.num_releases += 1

    def count_lease(self, num_bytes: int) -> None:
        """Counts memory that is leased already, whatever the limits are."""
        self.leased_bytes += num_bytes
        self._share_out()
        self.shrink()

    def lease(self, num_bytes: int) -> bool:
        """Takes memory for others than pools: what is free, spare or cached above the guarantees.

        False, and nothing taken, if there is not that much.
        """
        if num_bytes > self.available_bytes(None):
            return False
        while (missing := num_bytes - self.uncached_bytes(None)) > 0:
            self.evict_oldest(None, missing)
        self._free(num_bytes, None)
        self.leased_bytes += num_bytes
        return True

    def end_lease(self, num_bytes: int) -> None:
        assert 0 <= num_bytes <= self.leased_bytes, f"end of {num_bytes} of {self.leased_bytes} leased bytes"
        self.leased_bytes -= num_bytes
        self._share_out()

    def held_bytes(self, besides: Reclaimable) -> int:
        """Memory that other pools cannot do without."""
        return sum(map(held_bytes, self._others(besides)))

    def shortage(self, pool: Reclaimable, weight_bytes: int, guarantee_bytes: int) -> Shortage | None:
        """Whether a model fits, beside what others cannot do without; pool: its own."""
        kv_bytes = max(guarantee_bytes, pool.extent_bytes, held_bytes(pool))
        others = [other for other in self._pools if other is not pool]
        promised = self.leased_bytes + sum(map(self.guarantee_bytes, others))
        if promised + kv_bytes > self.kv_limit_bytes:
            return Shortage(kv_bytes, self.kv_limit_bytes, promised, is_of_kv=True)
        most = self.most_weights(pool, guarantee_bytes)
        if weight_bytes > most:
            limit = self.memory_limit_bytes
            return Shortage(weight_bytes + kv_bytes, limit, limit - most - kv_bytes)
        return None

    def most_weights(self, pool: Reclaimable, guarantee_bytes: int) -> int:
        """What a model's could be, beside its own pool and what others cannot do without."""
        others = [other for other in self._pools if other is not pool]
        held = sum(max(held_bytes(other), self.guarantee_bytes(other)) for other in others)
        kv_bytes = max(guarantee_bytes, pool.extent_bytes, held_bytes(pool))
        return self.memory_limit_bytes - self.weight_bytes - self.leased_bytes - held - kv_bytes

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
        """Pays debts as far as memory is spare or cached; what is guaranteed goes last, and only where limits
        are exceeded.
        """
        while (debt := -self.uncached_bytes(None)) > 0 and evict_oldest_of(self._evictable(None), debt):
            pass
        while (excess := self.excess_bytes - self._spare_bytes()) > 0 and evict_oldest_of(
            self._all_cached(), excess
        ):
            pass
        for pool in self._pools:
            while (debt := self.debt_bytes) > 0 and pool.trim(debt):
                pass

    def trim(self) -> bool:
        """Gives spare memory back to the system. True: there is more of it than one call can deal with."""
        return sum(pool.trim() for pool in self._pools) > 0

    def check(self) -> None:
        """The sums are right, and what is promised can be kept."""
        assert self.committed_bytes == sum(pool.committed_bytes for pool in self._pools), "committed bytes"
        assert self.leased_bytes >= 0 <= self.weight_bytes, "leases and weights"
        room = max(self.limit_bytes - self.leased_bytes, 0)
        assert sum(self._guaranteed.values()) <= room, "more is promised than there is"

    def evict_older_half(self) -> None:
        """Makes half of the cached content spare, what was used longest ago."""
        wanted = self._cached_bytes() // 2
        while (more := self._cached_bytes() - wanted) > 0 and evict_oldest_of(self._all_cached(), more):
            pass

    def _free(self, num_bytes: int, asking: Reclaimable | None) -> None:
        """Trims other pools until so much is free; there is that much without evicting anything."""
        for pool in self._others(asking):
            while (missing := num_bytes - self.free_bytes(asking)) > 0 and pool.trim(missing):
                pass
        assert self.free_bytes(asking) >= num_bytes, f"{num_bytes} bytes are more than is free"

    def _share_out(self) -> None:
        """The limit that counts now; each pool's guarantee, or its share of what there is for all."""
        self.limit_bytes = min(self.kv_limit_bytes, self.memory_limit_bytes - self.weight_bytes)
        room, total = max(self.limit_bytes - self.leased_bytes, 0), sum(self._guarantees.values())
        self._guaranteed = {
            pool: guarantee
            if total <= room
            else guarantee * room // total // pool.extent_bytes * pool.extent_bytes
            for pool, guarantee in self._guarantees.items()
        }

    def _above_guarantee(self, pool: Reclaimable) -> int:
        return max(pool.committed_bytes - self.guaranteed_bytes(pool), 0)

    def _guaranteed_to_others(self, pool: Reclaimable | None) -> int:
        own = 0 if pool is None else self.guaranteed_bytes(pool)
        return sum(self._guaranteed.values()) - own

    def _others(self, asking: Reclaimable | None) -> Iterable[Reclaimable]:
        return (pool for pool in self._pools if pool is not asking)

    def _evictable(self, asking: Reclaimable | None) -> dict[Reclaimable, int]:
        """Pools by whose evictions others gain, and by how many bytes."""
        gains = {pool: self._above_guarantee(pool) - pool.spare_bytes for pool in self._others(asking)}
        return {pool: gain for pool, gain in gains.items() if gain > 0}

    def _all_cached(self) -> dict[Reclaimable, int]:
        return {pool: pool.reclaimable_bytes - pool.spare_bytes for pool in self._pools}

    def _spare_bytes(self) -> int:
        return sum(pool.spare_bytes for pool in self._pools)

    def _cached_bytes(self) -> int:
        return sum(self._all_cached().values())
