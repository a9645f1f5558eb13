"""How many threads compute best: one for each core that this process may use.

Kernels keep a core's vector units busy from one thread. A second thread on the same core (SMT) shares those
units and the first-level cache, so it adds waiting at barriers rather than speed.
"""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Iterator
from pathlib import Path

from puna.config.cgroup import control_groups, read_text


def usable_cores(root: Path = Path("/")) -> int:
    """Cores of the affinity mask, or fewer if a control group's quota allows less time than that.

    root: where the system's /proc and /sys are found.
    """
    if not hasattr(os, "sched_getaffinity"):  # not Linux
        return os.cpu_count() or 1
    cores = num_cores(os.sched_getaffinity(0), root)
    return max(min([cores, *(math.ceil(quota) for quota in _quotas(root))]), 1)


def num_cores(cpus: Collection[int], root: Path = Path("/")) -> int:
    """Physical cores that these logical processors belong to; a processor of unknown core counts as one."""
    devices = root / "sys/devices/system/cpu"
    return len(
        {read_text(devices / f"cpu{cpu}/topology/thread_siblings_list").strip() or cpu for cpu in cpus}
    )


def _quotas(root: Path) -> Iterator[float]:
    """Processors' worth of time that each control group above this process grants."""
    for directory in control_groups("cpu", 2, root):
        yield from _quota(*read_text(directory / "cpu.max").split())
    for directory in control_groups("cpu", 1, root):
        files = (directory / "cpu.cfs_quota_us", directory / "cpu.cfs_period_us")
        yield from _quota(*(read_text(file).strip() for file in files))


def _quota(*words: str) -> Iterator[float]:
    """Of a quota and its period; "max" and -1 stand for no limit."""
    match words:
        case [quota, period] if quota.isdigit() and period.isdigit() and int(period) > 0:
            yield int(quota) / int(period)
