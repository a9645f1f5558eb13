"""A child process that is always there, or on its way: its death is noticed, and another one is started."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from puna.worker.cage import CageLevel
from puna.worker.call_client import WorkerDied

log = logging.getLogger(__name__)

SHUTTING_DOWN = "puna server is shutting down"

_FIRST_DELAY_S = 0.1
_MAX_DELAY_S = 1.0
_HEALTHY_AFTER_S = 10.0
"""A child that lived this long did not fail at the start: the next one is started without delay."""


class Process(Protocol):
    """A child process."""

    @property
    def pid(self) -> int: ...
    async def wait(self) -> int:
        """Its status."""

    async def terminate(self) -> None: ...


class ProcessStatus(NamedTuple):
    """A child of the daemon."""

    name: str
    pid: int
    cage: CageLevel


P = TypeVar("P", bound=Process)


class RestartingChild(Generic[P]):
    """One child at a time.

    name: for the log. spawn: starts a process. prepare: makes it ready for whoever waits for it; what it
    raises is raised to them, and WorkerDied has the process replaced.
    """

    def __init__(
        self, name: str, spawn: Callable[[], Awaitable[P]], prepare: Callable[[P], Awaitable[None]]
    ) -> None:
        self._name = name
        self._spawn = spawn
        self._prepare = prepare
        self.num_started = 0
        """Processes so far."""
        self.process: P | None = None
        """The one that is there now; perhaps it is not ready yet."""
        self.is_closing = False
        self._ready: asyncio.Task[P] | None = None
        self._background: set[asyncio.Task[None]] = set()
        self._started_s = 0.0
        self._num_failures = 0  # in a row

    def start(self) -> None:
        """Begins to start it, so that the first request finds it ready."""
        self._replace(None)

    async def current(self) -> P:
        """The process, when it is ready. Raises WorkerDied if it cannot be started."""
        ready = self._ready
        if self.is_closing:
            raise WorkerDied(SHUTTING_DOWN)
        if ready is None or (ready.done() and ready.exception() is not None):
            ready = self._replace(None)
        try:
            # Shielded: others wait for the same process when this request is cancelled.
            return await asyncio.shield(ready)
        except asyncio.CancelledError:
            if ready.cancelled():
                raise WorkerDied(SHUTTING_DOWN) from None
            raise

    def died(self, process: P) -> WorkerDied:
        """Begins to replace a dead process, once; returns the error for those who were using it."""
        if self.is_closing:
            return WorkerDied(SHUTTING_DOWN)
        if process is self.process:
            self.process = None
            lived_s = asyncio.get_running_loop().time() - self._started_s
            self._num_failures = 1 if lived_s >= _HEALTHY_AFTER_S else self._num_failures + 1
            self._replace(process)
        return WorkerDied()

    def run_in_background(self, work: Coroutine[Any, Any, None]) -> None:
        """Until close()."""
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def close(self) -> None:
        """Ends the process; requests that still run fail."""
        self.is_closing = True
        tasks = [*self._background, *([self._ready] if self._ready else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self.process is not None:
            await self.process.terminate()

    def _replace(self, dead: P | None) -> asyncio.Task[P]:
        self._ready = asyncio.create_task(self._start(dead), name=f"start {self._name}")
        self._ready.add_done_callback(_log_failure)
        return self._ready

    async def _start(self, dead: P | None) -> P:
        if dead is not None:
            await dead.terminate()  # only its connection may be gone
        if self._num_failures > 1:
            await asyncio.sleep(min(_FIRST_DELAY_S * 2 ** (self._num_failures - 2), _MAX_DELAY_S))
        try:
            process = await self._spawn()
        except (OSError, WorkerDied) as error:
            self._num_failures += 1
            raise WorkerDied(f"model runner could not be started: {error}") from error
        self.process = process
        self.num_started += 1
        self._started_s = asyncio.get_running_loop().time()
        self.run_in_background(self._watch(process))
        try:
            await self._prepare(process)
        except WorkerDied as error:
            raise self.died(process) from error
        log.debug("%s %d is ready", self._name, process.pid)
        return process

    async def _watch(self, process: P) -> None:
        status = await process.wait()
        if not self.is_closing:
            log.error("%s %d has ended with status %d", self._name, process.pid, status)
            self.died(process)


def _log_failure(task: asyncio.Task[Any]) -> None:
    with suppress(asyncio.CancelledError):
        if (error := task.exception()) is not None:
            log.error("%s", error, exc_info=None if isinstance(error, WorkerDied) else error)
