"""A thread for work that waits for a disk, which is itself waited for only as long as a disk may take."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from puna.kv.files.session_manifest import SavedSessionError
from puna.worker.file_threads import FileThreads

ANSWER_S = 10.0

T = TypeVar("T")


class DiskThread:
    """One thread: where the disk does not answer, others of the process are not used up."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._threads = FileThreads(1, name)

    async def run(self, work: Callable[[], T]) -> T:
        """As `work`. Raises SavedSessionError after ANSWER_S, and `work` may yet be done."""
        future: Future[T] = Future()
        self._threads.submit(lambda: _fulfil(future, work))
        try:
            return await asyncio.wait_for(asyncio.wrap_future(future), ANSWER_S)
        except TimeoutError:
            raise SavedSessionError(f"the disk of {self._name} does not answer") from None


def _fulfil(future: Future[T], work: Callable[[], T]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(work())
    except BaseException as error:
        future.set_exception(error)
