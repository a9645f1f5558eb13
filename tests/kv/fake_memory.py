"""Block memory that only remembers what it was asked for, and refuses what a test says is in use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from puna.backends.base import DeviceOutOfMemory


@dataclass
class FakeDevice:
    """What several memories share: extents that can be allocated."""

    most_bytes: int = 1 << 40
    allocated_bytes: int = 0


@dataclass
class FakeMemory:
    """released: extents, which are blocks unless the test says otherwise; in_use: blocks."""

    num_blocks: int
    block_bytes: int = 64
    extent_blocks: int = 1
    waste_bytes: int = 0
    device: FakeDevice = field(default_factory=FakeDevice)
    allocated: set[int] = field(default_factory=set)
    released: list[int] = field(default_factory=list)
    populated: list[int] = field(default_factory=list)
    fetched: list[int] = field(default_factory=list)
    in_use: set[int] = field(default_factory=set)
    closed: bool = False

    @property
    def extent_bytes(self) -> int:
        return self.extent_blocks * self.block_bytes + self.waste_bytes

    def allocate(self, extents: Sequence[int]) -> None:
        assert self.allocated.isdisjoint(extents), "allocated twice"
        num_bytes = len(extents) * self.extent_bytes
        if self.device.allocated_bytes + num_bytes > self.device.most_bytes:
            raise DeviceOutOfMemory
        self.device.allocated_bytes += num_bytes
        self.allocated.update(extents)

    def populate(self, extents: Sequence[int]) -> None:
        self.populated += extents

    def prefetch(self, extent: int) -> None:
        self.fetched.append(extent)

    def free(self, extents: Sequence[int]) -> None:
        blocks = {e * self.extent_blocks + i for e in extents for i in range(self.extent_blocks)}
        assert self.in_use.isdisjoint(blocks), "memory of a block in use given back"
        assert self.allocated.issuperset(extents), "memory given back that is not there"
        self.device.allocated_bytes -= len(extents) * self.extent_bytes
        self.allocated.difference_update(extents)
        self.released += extents

    def read(self, block: int, begin: int = 0, end: int | None = None) -> NDArray[np.uint8]:
        raise NotImplementedError

    def write(self, block: int, content: NDArray[np.uint8], begin: int = 0) -> None:
        raise NotImplementedError

    def move(
        self, source: NDArray[np.int32], destination: NDArray[np.int32], begin: int, to: int, count: int
    ) -> None:
        raise NotImplementedError

    def close(self) -> None:
        """Gives all memory back."""
        assert not self.in_use, "closed with blocks in use"
        self.device.allocated_bytes -= len(self.allocated) * self.extent_bytes
        self.allocated.clear()
        self.closed = True
