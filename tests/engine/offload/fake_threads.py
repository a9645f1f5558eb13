"""File threads that work when they are told to, in the test's own; or at once."""

from __future__ import annotations

from collections import deque

from puna.engine.offload.disk import ThreadKind, Work


class FakeThreads:
    """A FileThreads."""

    def __init__(self) -> None:
        self.reads: deque[tuple[Work, Work, int]] = deque()
        self.writes: deque[tuple[Work, Work, int]] = deque()

    @property
    def has_work(self) -> bool:
        return bool(self.reads or self.writes)

    def start(self, kind: ThreadKind, work: Work, done: Work, num_threads: int = 1) -> None:
        jobs = self.writes if kind == "write" else self.reads
        jobs.append((work, done, num_threads))

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


class PromptThreads:
    """A FileThreads that has done everything when it is asked to."""

    def start(self, kind: ThreadKind, work: Work, done: Work, num_threads: int = 1) -> None:  # noqa: ARG002
        for _ in range(num_threads):
            work()
        done()
