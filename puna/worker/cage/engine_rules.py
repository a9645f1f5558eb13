"""What an engine worker opens by name. Models come as descriptors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Literal

from puna.config.cgroup import control_groups
from puna.kv.files.state_directory import StateDirectory
from puna.worker.cage.rules import CageRules

_SYSTEM = (
    *("/proc/meminfo", "/proc/pressure/memory", "/proc/self/cgroup"),
    "/sys/devices/system/cpu",  # which processors share a core
)
_GROUP_FILES: dict[tuple[str, Literal[1, 2]], tuple[str, ...]] = {
    ("memory", 2): ("memory.max", "memory.current", "memory.stat", "memory.pressure"),
    ("memory", 1): ("memory.limit_in_bytes", "memory.usage_in_bytes", "memory.stat"),
    ("cpu", 2): ("cpu.max",),
    ("cpu", 1): ("cpu.cfs_quota_us", "cpu.cfs_period_us"),
}


def engine_rules(*state: str | None) -> CageRules:
    """state: directories of cached prefixes and saved sessions, if there are any. They are made if they are
    missing; where that fails, nothing is kept in them.
    """
    writable = []
    for directory in state:
        with suppress(OSError):
            if directory is not None:
                StateDirectory.open(Path(directory))
                writable.append(Path(directory))
    return CageRules(readable=(*map(Path, _SYSTEM), *_group_files()), writable=tuple(writable))


def _group_files() -> Iterator[Path]:
    """By which elastic memory and the number of threads follow the limits of control groups."""
    for (controller, version), names in _GROUP_FILES.items():
        for group in control_groups(controller, version):
            yield from (group / name for name in names)
