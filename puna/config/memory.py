"""How much memory this process may still take."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from puna.config.cgroup import control_groups, read_text

KV_FRACTION = 0.5
"""Share of the available memory that KV gets by default; mapped weights and everyone else need the rest."""

_UNKNOWN_BYTES = 2 << 30  # where the system does not say


def default_kv_limit_bytes() -> int:
    """A sane limit for the KV of all models."""
    return int(available_bytes() * KV_FRACTION)


def total_bytes(root: Path = Path("/")) -> int:
    """Memory that the machine has; 0 where the system does not say. root: as for available_bytes()."""
    match = re.search(r"^MemTotal:\s+(\d+) kB", read_text(root / "proc/meminfo"), re.MULTILINE)
    return int(match[1]) * 1024 if match else 0


def available_bytes(root: Path = Path("/")) -> int:
    """Memory available to this process: the system's, or less if a control group allows less.

    root: where the system's /proc and /sys/fs/cgroup are found.
    """
    candidates = [*_system_available(root / "proc"), *_cgroup_available(root)]
    return min(candidates, default=_UNKNOWN_BYTES)


def _system_available(proc: Path) -> Iterator[int]:
    if match := re.search(r"^MemAvailable:\s+(\d+) kB", read_text(proc / "meminfo"), re.MULTILINE):
        yield int(match[1]) * 1024


def _cgroup_available(root: Path) -> Iterator[int]:
    """What each control group above this process has left."""
    for directory in control_groups("memory", 2, root):
        yield from _left(directory, "memory.max", "memory.current")
    for directory in control_groups("memory", 1, root):
        yield from _left(directory, "memory.limit_in_bytes", "memory.usage_in_bytes")


def _left(group: Path, limit_file: str, usage_file: str) -> Iterator[int]:
    limit, usage = read_text(group / limit_file).strip(), read_text(group / usage_file).strip()
    if not (limit.isdigit() and usage.isdigit()):  # "max", or no such file
        return
    # Cached pages of files, of weights too, count as used, but the system drops them when memory is short.
    # The group's own are listed beside the totals that are counted: so in version 1.
    stat = read_text(group / "memory.stat")
    fields: dict[str, str] = dict(re.findall(r"^(\w+) (\d+)$", stat, re.MULTILINE))
    names = ("active_file", "inactive_file")
    cached = sum(int(fields.get(f"total_{name}") or fields.get(name, "0")) for name in names)
    yield max(int(limit) - int(usage) + cached, 0)
