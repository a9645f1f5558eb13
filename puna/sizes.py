"""Sizes as people read them."""

from __future__ import annotations


def human_size(num_bytes: int) -> str:
    """Decimal units: `980 B`, `4.7 GB`, `42 GB`."""
    value, unit = float(num_bytes), "B"
    for larger in ("KB", "MB", "GB", "TB"):
        if value < 1000:
            break
        value, unit = value / 1000, larger
    return f"{int(value)} {unit}" if value >= 10 or value.is_integer() else f"{value:.1f} {unit}"
