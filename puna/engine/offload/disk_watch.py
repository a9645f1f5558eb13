"""Tells a disk that is slow from one that does not answer."""

from __future__ import annotations

from collections.abc import Callable

PATIENCE_S = 3.0
"""After so long without any progress, nobody waits any longer."""


class DiskWatch:
    """To be told often how far threads are that read from or write to a disk."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """clock: seconds."""
        self._clock = clock
        self._progress: int | None = None
        self._since_s = 0.0

    def wait_s(self, progress: int | None) -> float | None:
        """progress: any number that changes once something was done; None: there is nothing to do.
        Returns after how many seconds without progress threads are given up: 0: now; None: never.
        """
        now_s = self._clock()
        if progress != self._progress:
            self._progress, self._since_s = progress, now_s
        return None if progress is None else max(self._since_s + PATIENCE_S - now_s, 0.0)
