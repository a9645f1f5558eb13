"""One limit on the KV memory of all models together."""

from __future__ import annotations

from typing import Protocol


class Reclaimable(Protocol):
    """A pool that holds memory it can do without."""

    @property
    def reclaimable_bytes(self) -> int: ...

    def trim(self) -> None:
        """Gives reclaimable memory back, through Budget.release()."""


class Budget:
    """Counts committed bytes against `limit_bytes`. Memory that one pool keeps spare is there for all."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.committed_bytes = 0
        self._pools: list[Reclaimable] = []

    def join(self, pool: Reclaimable) -> None:
        self._pools.append(pool)

    def leave(self, pool: Reclaimable) -> None:
        self._pools.remove(pool)

    def available_bytes(self, asking: Reclaimable) -> int:
        """What `asking` could commit, besides the spare memory it has itself."""
        spare = sum(pool.reclaimable_bytes for pool in self._pools if pool is not asking)
        return self.limit_bytes - self.committed_bytes + spare

    def commit(self, num_bytes: int, asking: Reclaimable) -> bool:
        """Counts `num_bytes` as committed, taking other pools' spare memory where needed; False: too much."""
        if self.available_bytes(asking) < num_bytes:
            return False
        for pool in self._pools:
            if self.committed_bytes + num_bytes <= self.limit_bytes:
                break
            if pool is not asking:
                pool.trim()
        self.committed_bytes += num_bytes
        return True

    def release(self, num_bytes: int) -> None:
        assert 0 <= num_bytes <= self.committed_bytes, (
            f"release of {num_bytes} of {self.committed_bytes} bytes"
        )
        self.committed_bytes -= num_bytes
