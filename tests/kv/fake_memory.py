"""Block memory that only remembers what it was asked to release, and refuses what a test says is in use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass
class FakeMemory:
    num_blocks: int
    block_bytes: int = 64
    released: list[int] = field(default_factory=list)
    in_use: set[int] = field(default_factory=set)
    closed: bool = False

    def release(self, block_ids: Sequence[int]) -> None:
        assert self.in_use.isdisjoint(block_ids), "memory of a block in use given back"
        self.released += block_ids

    def close(self) -> None:
        self.closed = True
