"""What an engine worker opens by name. Models and sessions come as descriptors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Literal

from puna.config.cgroup import control_groups
from puna.kv.state_directory import StateDirectory
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


def engine_rules(kv_dir: Path | None) -> CageRules:
    """The directory of cached prefixes is made if it is missing; where that fails, nothing is kept in it."""
    writable: tuple[Path, ...] = ()
    if kv_dir is not None:
        with suppress(OSError):
            StateDirectory.open(kv_dir)
            writable = (kv_dir,)
    return CageRules(readable=(*map(Path, _SYSTEM), *_group_files()), writable=writable)


def _group_files() -> Iterator[Path]:
    """By which elastic memory and the number of threads follow the limits of control groups."""
    for (controller, version), names in _GROUP_FILES.items():
        for group in control_groups(controller, version):
            yield from (group / name for name in names)
