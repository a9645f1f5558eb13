"""The two limits of memory, and what may be moved between two pairs of them."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec


class Limits(msgspec.Struct, frozen=True):
    """In bytes: of KV memory, and of that and weights together."""

    kv_bytes: int = 0
    memory_bytes: int = 0

    def __add__(self, other: Limits) -> Limits:
        return Limits(self.kv_bytes + other.kv_bytes, self.memory_bytes + other.memory_bytes)

    def __sub__(self, other: Limits) -> Limits:
        return Limits(self.kv_bytes - other.kv_bytes, self.memory_bytes - other.memory_bytes)

    def __bool__(self) -> bool:
        return self != NOTHING

    def plus(self, num_bytes: int) -> Limits:
        """Both more by so much."""
        return Limits(self.kv_bytes + num_bytes, self.memory_bytes + num_bytes)

    def at_most(self, other: Limits) -> Limits:
        return Limits(min(self.kv_bytes, other.kv_bytes), min(self.memory_bytes, other.memory_bytes))

    def at_least(self, other: Limits) -> Limits:
        return Limits(max(self.kv_bytes, other.kv_bytes), max(self.memory_bytes, other.memory_bytes))

    def covers(self, other: Limits) -> bool:
        return self.kv_bytes >= other.kv_bytes and self.memory_bytes >= other.memory_bytes


NOTHING = Limits()


def total(limits: Iterable[Limits]) -> Limits:
    return sum(limits, start=NOTHING)
