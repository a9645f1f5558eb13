"""What one conversion may take. Going beyond ends the process, or is an error in it."""

from __future__ import annotations

import resource
import signal
from pathlib import Path

TOO_SLOW = signal.SIGPROF
"""What ends a process that has taken too much processor time."""

MEMORY_BYTES = 4 << 30
"""Of its own, beyond what it begins with: weights are converted a piece at a time. Files that are mapped come
on top.
"""
_CPU_S = 300
"""For reading configurations and vocabularies..."""
_CPU_S_PER_MIB = 2
"""...and for quantizing: the slowest types take a tenth of it."""
_GROWTH = 16
"""Of the output: two bits become 32 at most..."""
_MORE_BYTES = 1 << 30
"""...and then there is the vocabulary."""


def limit_process(input_bytes: int) -> None:
    """For this process, irrevocably. input_bytes: size of all that it reads."""
    own, data = _memory_now()
    for kind, limit in (
        (resource.RLIMIT_AS, own + input_bytes + MEMORY_BYTES),
        (resource.RLIMIT_DATA, data + MEMORY_BYTES),
        (resource.RLIMIT_FSIZE, _GROWTH * input_bytes + _MORE_BYTES),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(kind, (limit, limit))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # writing fails instead
    signal.signal(TOO_SLOW, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_PROF, _CPU_S + _CPU_S_PER_MIB * (input_bytes >> 20))


def _memory_now() -> tuple[int, int]:
    """Bytes of address space, and of those that are data."""
    fields = Path("/proc/self/statm").read_text().split()
    return int(fields[0]) * resource.getpagesize(), int(fields[5]) * resource.getpagesize()
