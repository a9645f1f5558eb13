"""KV memory of the CPU: address space for all blocks there could ever be, and memory for those in use."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from puna._native import Arena, NativeError, Program, ThreadPool
from puna.backends.base import BLOCK_TOKENS, DeviceOutOfMemory, KvGroup, KvReservation
from puna.config.memory import total_bytes

HUGE_PAGE_BYTES = 2 << 20
_MIN_PAGES = 64  # of the limit: below that, whole huge pages would be too coarse
_MAX_EXTENT_PAGES = 8
_TOLERATED_WASTE = 0.06
_MAX_BLOCKS = 2**31 - 1  # block ids are int32


class CpuKvMemory:
    """A BlockMemory. Memory comes as it is written, so allocating costs nothing and never fails."""

    def __init__(self, arena: Arena, group: int, program: Program, threads: ThreadPool) -> None:
        self.arena = arena
        self.num_blocks = arena.num_blocks
        self.block_bytes = arena.block_bytes
        self.extent_blocks = arena.extent_blocks
        self.extent_bytes = arena.extent_bytes
        self._group = group
        self._program = program
        self._threads = threads

    def allocate(self, extents: Sequence[int]) -> None:
        pass

    def populate(self, extents: Sequence[int]) -> None:
        try:
            self.arena.commit(extents)
        except NativeError as error:
            raise DeviceOutOfMemory(str(error)) from error

    def prefetch(self, extent: int) -> None:
        self.arena.fetch(extent)

    def free(self, extents: Sequence[int]) -> None:
        self.arena.release(extents)

    def read(self, block: int, begin: int = 0, end: int | None = None) -> NDArray[np.uint8]:
        return self.arena.block(block)[begin:end].copy()

    def write(self, block: int, content: NDArray[np.uint8], begin: int = 0) -> None:
        np.copyto(self.arena.block(block)[begin : begin + len(content)], content)

    def move(
        self,
        source: NDArray[np.int32],
        destination: NDArray[np.int32],
        source_begin: int,
        destination_begin: int,
        num_tokens: int,
    ) -> None:
        ranges = (source_begin, destination_begin, num_tokens)
        self._program.move_kv(self._threads, self._group, self.arena, source, destination, *ranges)

    def close(self) -> None:
        self.arena.close()


def reserve_arena(group: KvGroup, reservation: KvReservation) -> Arena:
    """Address space. Raises NativeError if the system does not grant it."""
    plan = plan_state_extent if group.is_state else plan_extent
    extent = plan(group.block_bytes, reservation.room_bytes)
    if reservation.static_tokens is not None:
        num_blocks = -(-reservation.static_tokens // BLOCK_TOKENS)
        return _arena(group, extent, reservation.static_states if group.is_state else num_blocks)
    # Limits may be raised later. Where address space is limited, too, they cannot be.
    limit_bytes = reservation.limit_bytes
    most, least = max(total_bytes(), limit_bytes), max(limit_bytes, extent.num_bytes)
    with suppress(NativeError):
        return _arena(group, extent, most // extent.num_bytes * extent.num_blocks)
    return _arena(group, extent, least // extent.num_bytes * extent.num_blocks)


class Extent(NamedTuple):
    """Blocks that get and lose their memory together."""

    num_blocks: int
    num_bytes: int
    """At least what the blocks take."""


def plan_extent(block_bytes: int, room_bytes: int) -> Extent:
    """Some huge pages, nearly filled by blocks; a single block where they would not be, or memory is scarce.

    Huge pages come ten times as fast as the many small ones of which each would take a page fault.
    """
    if room_bytes < _MIN_PAGES * HUGE_PAGE_BYTES:
        return Extent(1, block_bytes)
    extents = [_extent(num_pages, block_bytes) for num_pages in range(1, _MAX_EXTENT_PAGES + 1)]
    for extent in extents:  # the smallest that will do
        if extent.num_blocks * block_bytes >= (1 - _TOLERATED_WASTE) * extent.num_bytes:
            return extent
    return Extent(1, block_bytes)


def plan_state_extent(block_bytes: int, room_bytes: int) -> Extent:
    """One state, which comes and goes alone; huge pages if it nearly fills them."""
    num_bytes = -(-block_bytes // HUGE_PAGE_BYTES) * HUGE_PAGE_BYTES
    is_scarce = room_bytes < _MIN_PAGES * HUGE_PAGE_BYTES
    return Extent(
        1, block_bytes if is_scarce or block_bytes < (1 - _TOLERATED_WASTE) * num_bytes else num_bytes
    )


def _extent(num_pages: int, block_bytes: int) -> Extent:
    num_bytes = num_pages * HUGE_PAGE_BYTES
    return Extent(num_bytes // block_bytes, num_bytes)


def _arena(group: KvGroup, extent: Extent, num_blocks: int) -> Arena:
    return Arena(min(num_blocks, _MAX_BLOCKS), group.block_bytes, extent.num_blocks, extent.num_bytes)
