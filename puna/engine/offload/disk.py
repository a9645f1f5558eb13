"""Threads that wait for a disk, and how long the engine waits for such a thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Protocol

Work = Callable[[], object]

ThreadKind = Literal["find", "read", "write", "sessions"]
"""find: what is short, whose caller should not wait for what others read. read: prefixes, in several threads.
write: prefixes, in one. sessions: one at a time is written or read."""

PATIENCE_S = 3.0
"""After so long without any progress, a disk counts as one that does not answer."""


class FileThreads(Protocol):
    """Threads for work that waits for a disk."""

    def start(self, kind: ThreadKind, work: Work, done: Work, num_threads: int = 1) -> None:
        """Has so many threads run `work`, behind what was started before, and then the engine's `done`."""


class DiskWatch:
    """Tells a disk that is slow from one that does not answer. To be asked often."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """clock: seconds."""
        self._clock = clock
        self._progress: int | None = None
        self._since_s = 0.0

    def wait_s(self, progress: int | None) -> float | None:
        """progress: any number that changes once something was done; None: there is nothing to do.
        Returns the seconds until the threads are given up if there is no progress; 0: now; None: never.
        """
        now_s = self._clock()
        if progress != self._progress:
            self._progress, self._since_s = progress, now_s
        return None if progress is None else max(self._since_s + PATIENCE_S - now_s, 0.0)
