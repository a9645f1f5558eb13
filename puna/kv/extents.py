"""How many blocks get their memory together."""

from __future__ import annotations

from typing import NamedTuple

HUGE_PAGE_BYTES = 2 << 20
_MIN_PAGES = 64  # of the limit: below that, whole huge pages would be too coarse
_MAX_EXTENT_PAGES = 8
_TOLERATED_WASTE = 0.06
_FEWEST_EXTENTS = 8


class Extent(NamedTuple):
    """Blocks that are committed and released together."""

    num_blocks: int
    num_bytes: int
    """At least what the blocks take."""


def plan_extent(block_bytes: int, limit_bytes: int) -> Extent:
    """Some huge pages, nearly filled by blocks; a single block where they would not be, or memory is scarce.

    Huge pages come ten times as fast as the many small ones of which each would take a page fault.
    """
    if limit_bytes < _MIN_PAGES * HUGE_PAGE_BYTES:
        return Extent(1, block_bytes)
    extents = [_extent(num_pages, block_bytes) for num_pages in range(1, _MAX_EXTENT_PAGES + 1)]
    for extent in extents:  # the smallest that will do
        if extent.num_blocks * block_bytes >= (1 - _TOLERATED_WASTE) * extent.num_bytes:
            return extent
    return Extent(1, block_bytes)


def is_too_coarse(extent_bytes: int, limit_bytes: int) -> bool:
    """Whether so few extents are within a limit that blocks had better get their memory one by one."""
    return limit_bytes < _FEWEST_EXTENTS * extent_bytes


def _extent(num_pages: int, block_bytes: int) -> Extent:
    num_bytes = num_pages * HUGE_PAGE_BYTES
    return Extent(num_bytes // block_bytes, num_bytes)
