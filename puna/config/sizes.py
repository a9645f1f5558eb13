"""Sizes as people read them: decimal ones of files, binary ones of memory."""

from __future__ import annotations


def human_size(num_bytes: int) -> str:
    """Decimal units: `980 B`, `4.7 GB`, `42 GB`."""
    value, unit = float(num_bytes), "B"
    for larger in ("KB", "MB", "GB", "TB"):
        if value < 1000:
            break
        value, unit = value / 1000, larger
    return f"{int(value)} {unit}" if value >= 10 or value.is_integer() else f"{value:.1f} {unit}"


def binary_size(num_bytes: int) -> str:
    """Units of 1024, as sizes of memory are given: `0 B`, `1.25 GiB`, `512 MiB`; at most 8 characters."""
    value, unit = float(num_bytes), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB", "PiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{int(value)} {unit}" if value >= 100 else f"{value:.3g} {unit}"


def human_count(count: int) -> str:
    """Of parameters: `134.52M`, `7.6B`, `70B`, in Ollama's wording."""
    for unit, suffix, decimals in ((10**9, "B", 1), (10**6, "M", 2), (10**3, "K", 0)):
        if count >= unit:
            return f"{count / unit:.{0 if count % unit == 0 else decimals}f}{suffix}"
    return str(count)
