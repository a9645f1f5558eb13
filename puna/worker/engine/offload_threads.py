"""Threads in which prefixes and sessions are written to files and read from them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from puna.engine.offload.disk import ThreadKind, Work
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
        except Exception:  # the job tells by what it has done; the engine must go on
            log.exception("KV on disk")
        with self.lock:
            self.num_threads -= 1
            return self.num_threads == 0


class OffloadThreads:
    """The worker's FileThreads. For the engine's thread.

    call_soon: has the engine's thread call a function.
    """

    def __init__(self, call_soon: Callable[[Work], None]) -> None:
        self._call_soon = call_soon
        self._jobs: list[_Job] = []
        # A disk that is slow to write must not keep anybody from reading.
        self._threads: dict[ThreadKind, FileThreads] = {
            "find": FileThreads(1, "find prefixes"),
            "read": FileThreads(_NUM_READERS, "read prefixes"),
            "write": FileThreads(1, "write prefixes"),
            "sessions": FileThreads(1, "sessions"),
        }

    def start(self, kind: ThreadKind, work: Work, done: Work, num_threads: int = 1) -> None:
        """See FileThreads of the engine."""
        job = _Job(work, done, num_threads)
        self._jobs.append(job)
        for _ in range(job.num_threads):
            self._threads[kind].submit(lambda: self._run(job))

    def close(self) -> None:
        """Before the engine closes, once its offload has stopped; waits for threads to be done with what they
        are at, unless the disk does not answer.
        """
        for threads in self._threads.values():
            threads.close()
        for job in [job for job in self._jobs if job.num_threads == 0]:
            self._end(job)

    def _run(self, job: _Job) -> None:
        if job.run():
            self._call_soon(lambda: self._end(job))

    def _end(self, job: _Job) -> None:
        if job in self._jobs:
            self._jobs.remove(job)
            job.done()
