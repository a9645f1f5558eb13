"""How coarse the memory of blocks may be."""

from __future__ import annotations

_FEWEST_EXTENTS = 8


def is_too_coarse(extent_bytes: int, limit_bytes: int) -> bool:
    """Whether so few extents are within a limit that blocks had better get their memory one by one."""
    return limit_bytes < _FEWEST_EXTENTS * extent_bytes
