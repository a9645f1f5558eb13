"""Whether the system is short of memory: Linux's pressure stall information."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from puna.config.cgroup import control_groups, read_text

STALLED_SHARE = 0.1
"""Part of the time that tasks waited for memory: more is pressure."""

_SOME_TOTAL = re.compile(r"^some .*\btotal=(\d+)$", re.MULTILINE)


class MemoryPressure:
    """How long tasks of this control group, or of the machine, waited for memory."""

    def __init__(self, root: Path = Path("/"), clock: Callable[[], float] = time.monotonic) -> None:
        """root: where the system's /proc and /sys/fs/cgroup are found. clock: seconds."""
        self._path = next((path for path in _files(root) if _stalled_us(path) is not None), None)
        self._clock = clock
        self._last: tuple[float, int] | None = None

    @property
    def is_known(self) -> bool:
        """False: the system does not say."""
        return self._path is not None

    def is_high(self) -> bool:
        """Whether, since the last call, tasks waited for more than a tenth of the time; at first False."""
        stalled_us = None if self._path is None else _stalled_us(self._path)
        if stalled_us is None:
            return False
        now, last = self._clock(), self._last
        self._last = now, stalled_us
        if last is None or now <= last[0]:
            return False
        return stalled_us - last[1] > STALLED_SHARE * 1e6 * (now - last[0])


def _files(root: Path) -> Iterator[Path]:
    """The group's own first: what happens in it is what this process can relieve."""
    for group in control_groups("memory", 2, root):
        yield group / "memory.pressure"
    yield root / "proc/pressure/memory"


def _stalled_us(path: Path) -> int | None:
    match = _SOME_TOTAL.search(read_text(path))
    return int(match[1]) if match else None
