"""File threads that work when they are told to, in the test's own."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

Work = Callable[[], None]


class FakeThreads:
    """A FileThreads."""

    def __init__(self) -> None:
        self.reads: deque[tuple[Work, Work, int]] = deque()
        self.writes: deque[tuple[Work, Work, int]] = deque()

    @property
    def has_work(self) -> bool:
        return bool(self.reads or self.writes)

    def look(self, work: Work, done: Work) -> None:
        self.read(work, done)

    def read(self, work: Work, done: Work, num_threads: int = 1) -> None:
        self.reads.append((work, done, num_threads))

    def write(self, work: Work, done: Work) -> None:
        self.writes.append((work, done, 1))

    def run_one(self, *, reads: bool) -> bool:
        """False: there is nothing of that kind to do."""
        jobs = self.reads if reads else self.writes
        if not jobs:
            return False
        work, done, num_threads = jobs.popleft()
        for _ in range(num_threads):
            work()
        done()
        return True

    def run(self) -> None:
        while self.run_one(reads=True) or self.run_one(reads=False):
            pass
