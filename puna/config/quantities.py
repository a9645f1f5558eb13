"""Durations and sizes as people write them."""

from __future__ import annotations

import math
import re

from puna.config.sizes import binary_size

# Go's time.ParseDuration, with its error texts: clients know them.
_UNIT_S = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION_PART = re.compile(r"(\d+\.?\d*|\.\d+)([^\d.]*)", re.ASCII)
_MAX_DURATION_CHARS = 64
_MAX_DURATION_S = (2**63 - 1) / 1e9


def parse_duration(text: str) -> float:
    """Seconds of a Go duration such as "1h30m", "-1s" or "0"; raises ValueError with Go's text."""
    if len(text) > _MAX_DURATION_CHARS:
        raise ValueError(f'time: invalid duration "{text[:_MAX_DURATION_CHARS]}"')
    unsigned = text[1:] if text[:1] in ("+", "-") else text
    if unsigned == "0":
        return 0.0
    position, seconds = 0, 0.0
    while position < len(unsigned):
        part = _DURATION_PART.match(unsigned, position)
        if part is None:
            raise ValueError(f'time: invalid duration "{text}"')
        number, unit = part.groups()
        if not unit:
            raise ValueError(f'time: missing unit in duration "{text}"')
        if unit not in _UNIT_S:
            raise ValueError(f'time: unknown unit "{unit}" in duration "{text}"')
        seconds += float(number) * _UNIT_S[unit]
        position = part.end()
    if not unsigned or seconds > _MAX_DURATION_S:
        raise ValueError(f'time: invalid duration "{text}"')
    return -seconds if text.startswith("-") else seconds


def keep_alive_seconds(value: float | str) -> float:
    """Seconds a model stays after its last request, from a number or a Go duration; negative: math.inf.

    Raises ValueError with Go's text for a string that is no duration.
    """
    seconds = parse_duration(value) if isinstance(value, str) else float(value)
    return seconds if 0 <= seconds <= _MAX_DURATION_S else math.inf


_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(?:([KMGT])(?:i?B)?|B)?", re.ASCII | re.IGNORECASE)
_MAX_SIZE = 2**63 - 1
_MIN_MEMORY_LIMIT = 1 << 20
_MAX_MEMORY_LIMIT = 64 << 40  # half of the address space that most processors leave to a process


def parse_size(text: str, unit: int = 1) -> int:
    """Bytes of a size such as "12GiB", "1.5g" or "512 MB"; units are powers of 1024, "_" and "," are ignored.

    unit: bytes that a number without a unit counts. Raises ValueError.
    """
    match = _SIZE.fullmatch(text.strip().replace("_", "").replace(",", ""))
    if match is None:
        raise ValueError(f'"{text}" is not a size (try 12GiB)')
    has_unit = match[0][-1].isalpha()
    value = float(match[1]) * (1024 ** " KMGT".index((match[2] or " ").upper()) if has_unit else unit)
    if value > _MAX_SIZE:
        raise ValueError(f'"{text}" is more than any memory')
    return int(value)


def parse_memory_limit(text: str, unit: int = 1) -> int:
    """A limit, in bytes, of 1 MiB at least: who gives less has forgotten the unit, and who gives more than a
    process can address has mistaken it. unit: as for parse_size().

    Raises ValueError.
    """
    if (num_bytes := parse_size(text, unit)) < 1:
        raise ValueError(f'"{text}" is no memory at all (try 12GiB)')
    if num_bytes < _MIN_MEMORY_LIMIT:
        raise ValueError(f'"{text}" is {binary_size(num_bytes)}, less than any model can use (try 4GB)')
    if num_bytes > _MAX_MEMORY_LIMIT:
        most = binary_size(_MAX_MEMORY_LIMIT)
        raise ValueError(f'"{text}" is more than the {most} that one process can use (try 4GB)')
    return num_bytes
