"""What one text worker may take. Going beyond ends the process, or is a MemoryError in it."""

from __future__ import annotations

import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

TOO_SLOW = signal.SIGPROF
"""What ends a process that has taken too much processor time."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Processor time is not wall time: an honest prompt may wait while the engine has all cores."""

    prompt_cpu_s: float = 4.0
    """Of one request."""
    file_cpu_s: float = 60.0
    """Of what is done once for a file: reading its vocabulary."""
    memory_bytes: int = 1 << 30
    """Beyond what the process has when it begins."""
    kept_bytes: int = 256 << 20
    """A worker that once had so much more does not go on: it may have kept some."""
    file_bytes: int = 256 << 20
    """Of each file that it writes."""


_STACK_BYTES = 96 << 20
"""What reads grammars follows chains of rules by recursion. Linux keeps 128 MiB free for the first stack."""


def limit_process(limits: Limits) -> None:
    """For this process, irrevocably."""
    num_pages = int(Path("/proc/self/statm").read_text().split()[0])
    memory = num_pages * resource.getpagesize() + limits.memory_bytes
    for kind, limit in (
        (resource.RLIMIT_AS, memory),
        (resource.RLIMIT_FSIZE, limits.file_bytes),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(kind, (limit, limit))
    _, most = resource.getrlimit(resource.RLIMIT_STACK)
    stack = _STACK_BYTES if most == resource.RLIM_INFINITY else min(_STACK_BYTES, most)
    resource.setrlimit(resource.RLIMIT_STACK, (stack, most))
    signal.signal(TOO_SLOW, signal.SIG_DFL)


@contextmanager
def processor_time(seconds: float) -> Iterator[None]:
    """What is inside may take so much; the system ends the process that takes more."""
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def peak_bytes() -> int:
    """The most memory that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
