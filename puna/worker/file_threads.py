"""Threads for what waits for a disk, which may be left behind where the disk does not answer."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable

log = logging.getLogger(__name__)

CLOSE_S = 1.0
"""How long close() waits for what a thread is at: a block, or a session's next one."""

Work = Callable[[], None]


class FileThreads:
    """Some threads that do what is submitted, in order, as they are free. `work` does not raise.

    submit() and close() are for one thread.
    """

    def __init__(self, num_threads: int, name: str) -> None:
        self._name = name
        self._work: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        # Daemons: the end of the process does not wait for them.
        self._threads = [
            threading.Thread(target=self._run, name=name, daemon=True) for _ in range(num_threads)
        ]
        self._has_started = False

    def submit(self, work: Work) -> None:
        """Has one of the threads do it."""
        self._work.put(work)
        if not self._has_started:
            self._has_started = True
            for thread in self._threads:
                thread.start()

    def close(self) -> None:
        """Waits until all that was submitted is done, for CLOSE_S at most."""
        for _ in self._threads:
            self._work.put(None)
        deadline_s = time.monotonic() + CLOSE_S
        for thread in self._threads if self._has_started else []:
            thread.join(max(deadline_s - time.monotonic(), 0.0))
            if thread.is_alive():
                log.warning("%s: the disk does not answer: it is not waited for", self._name)

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            work()
