"""Block memory that only remembers what it was asked to release, and refuses what a test says is in use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass
class FakeMemory:
    """released: extents, which are blocks unless the test says otherwise; in_use: blocks."""

    num_blocks: int
    block_bytes: int = 64
    extent_blocks: int = 1
    waste_bytes: int = 0
    released: list[int] = field(default_factory=list)
    committed: list[int] = field(default_factory=list)
    fetched: list[int] = field(default_factory=list)
    in_use: set[int] = field(default_factory=set)
    closed: bool = False

    @property
    def extent_bytes(self) -> int:
        return self.extent_blocks * self.block_bytes + self.waste_bytes

    def allocate(self, extents: Sequence[int]) -> None:
        pass

    def populate(self, extents: Sequence[int]) -> None:
        self.committed += extents

    def prefetch(self, extent: int) -> None:
        self.fetched.append(extent)

    def free(self, extents: Sequence[int]) -> None:
        blocks = {e * self.extent_blocks + i for e in extents for i in range(self.extent_blocks)}
        assert self.in_use.isdisjoint(blocks), "memory of a block in use given back"
        self.released += extents

    def close(self) -> None:
        self.closed = True
