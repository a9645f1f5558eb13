"""Threads in which prefixes are written to files and read from them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from puna.engine.offload.prefix_restores import Work
from puna.engine.offload.warm_prefixes import WarmPrefixes
from puna.worker.file_threads import FileThreads

log = logging.getLogger(__name__)

_NUM_READERS = 2


@dataclass(eq=False, slots=True)
class _Job:
    """`work`, in num_threads threads at once, and what follows it."""

    work: Work
    done: Work
    num_threads: int
    lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self) -> bool:
        """Whether this was the last thread."""
        try:
            self.work()
        except Exception:  # the job tells by what it has done; whoever waits for it must go on
            log.exception("cached prefixes on disk")
        with self.lock:
            self.num_threads -= 1
            return self.num_threads == 0


class PrefixService:
    """Belongs to the engine's thread, but for what runs in its own threads.

    call_soon: has the engine's thread call a function.
    """

    def __init__(self, prefixes: WarmPrefixes, call_soon: Callable[[Work], None]) -> None:
        self._prefixes = prefixes
        self._call_soon = call_soon
        self._jobs: list[_Job] = []
        # Whoever begins anew looks what there is, and should not wait until others have read theirs.
        self._finder = FileThreads(1, "find prefixes")
        self._readers = FileThreads(_NUM_READERS, "read prefixes")
        # A disk that is slow to write must not keep anybody from reading.
        self._writer = FileThreads(1, "write prefixes")
        prefixes.use_threads(self)

    def look(self, work: Work, done: Work) -> None:
        """See FileThreads."""
        self._start(self._finder, _Job(work, done, 1))

    def read(self, work: Work, done: Work, num_threads: int = 1) -> None:
        """See FileThreads."""
        self._start(self._readers, _Job(work, done, num_threads))

    def write(self, work: Work, done: Work) -> None:
        """See FileThreads."""
        self._start(self._writer, _Job(work, done, 1))

    def close(self) -> None:
        """Before the engine closes; waits for threads to be done with the block that they are at, unless the
        disk does not answer. What a thread is still using then stays where it is.
        """
        self._prefixes.stop()
        for threads in (self._finder, self._readers, self._writer):
            threads.close()
        for job in [job for job in self._jobs if job.num_threads == 0]:
            self._end(job)

    def _start(self, threads: FileThreads, job: _Job) -> None:
        self._jobs.append(job)
        for _ in range(job.num_threads):
            threads.submit(lambda: self._run(job))

    def _run(self, job: _Job) -> None:
        if job.run():
            self._call_soon(lambda: self._end(job))

    def _end(self, job: _Job) -> None:
        if job in self._jobs:
            self._jobs.remove(job)
            job.done()
