"""Keeps a worker running: starts it, notices its death, starts another and loads again what was resident."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from puna.backends.base import ModelInfo, ModelLoadError
from puna.daemon.kept_memory import KeptMemory
from puna.daemon.worker_protocols import Client, Process
from puna.engine.request import EngineStats, Request, StepOutput
from puna.engine.sessions import SessionStatus
from puna.worker.client import WorkerDied
from puna.worker.protocol import Leased

log = logging.getLogger(__name__)
T = TypeVar("T")

RUNNER_STOPPED = (
    "model runner has unexpectedly stopped, this may be due to resource limitations or an internal error, "
    "check puna server logs for details"
)
SHUTTING_DOWN = "puna server is shutting down"

_FIRST_DELAY_S = 0.1
_MAX_DELAY_S = 5.0
_SAVE_TIMEOUT_S = 6.0
"""The worker itself stops writing after five."""
_HEALTHY_AFTER_S = 10.0
"""A worker that lived this long did not fail at the start: the next one is started without delay."""


class _Model(NamedTuple):
    """What it takes to load a model again."""

    path: Path
    weight: float
    minimum_kv_bytes: int


class _Sleeper(NamedTuple):
    model: _Model
    process: Process
    """The worker that has it; in another one it must be loaded."""


class WorkerSupervisor:
    """A worker that is always there, or on its way.

    spawn: starts a worker process.
    on_lost: told the id of a model that could not be loaded again after a restart, and why.
    All methods raise WorkerDied, with a text for users, when the worker dies or cannot be started.
    """

    def __init__(
        self, spawn: Callable[[], Awaitable[Process]], on_lost: Callable[[str, Exception], None]
    ) -> None:
        self._spawn = spawn
        self._on_lost = on_lost
        self.num_started = 0
        """Workers so far."""
        self._resident: dict[str, _Model] = {}
        self._asleep: dict[str, _Sleeper] = {}
        self._memory = KeptMemory()
        self._process: Process | None = None
        self._ready: asyncio.Task[Process] | None = None
        self._background: set[asyncio.Task[None]] = set()
        self._started_s = 0.0
        self._num_failures = 0  # in a row
        self._closing = False

    @property
    def leased_bytes(self) -> int:
        """What others than the models have of its memory."""
        return self._memory.leased_bytes

    def start(self) -> None:
        """Begins to start the worker, so that the first request finds it ready."""
        self._replace(None)

    async def load(
        self, model_id: str, path: Path, weight: float = 1.0, minimum_kv_bytes: int = 0
    ) -> ModelInfo:
        """Makes a model resident, also in later workers. Raises ModelLoadError, ModelDoesNotFit.

        weight: its share of the device when other models are busy, too; minimum_kv_bytes: KV memory that it
        is sure of.
        """
        return await self._bring(model_id, _Model(path, weight, minimum_kv_bytes), None)

    async def unload(self, model_id: str) -> None:
        """Gives the model's memory back. Does not raise: with a dead worker, it is already gone."""
        self._resident.pop(model_id, None)
        self._asleep.pop(model_id, None)
        if self._process is not None:
            with suppress(WorkerDied):
                await self._process.client.unload(model_id)

    async def sleep(self, model_id: str) -> bool:
        """The model gives its memory back. It can be woken, but is not loaded in later workers. False: it
        cannot, because its worker has died.
        """
        model, process = self._resident.pop(model_id, None), self._process
        if model is None or process is None:
            return False
        try:
            await process.client.sleep(model_id)
        except WorkerDied:
            return False
        self._asleep[model_id] = _Sleeper(model, process)
        return True

    async def wake(self, model_id: str) -> ModelInfo:
        """Makes a model resident that sleeps. Raises ModelLoadError; it then sleeps on."""
        return await self._bring(model_id, *self._asleep[model_id])

    async def generate(self, request: Request) -> AsyncGenerator[StepOutput, None]:
        """The request's steps. Closing the generator cancels the request."""
        process = await self._current()
        try:
            async with aclosing(process.client.generate(request)) as outputs:
                async for output in outputs:
                    yield output
        except WorkerDied as error:
            raise self._died(process) from error

    async def cancel(self, request_id: str) -> None:
        """Asks for the request's end; its last output then says "cancelled" and has its statistics.

        Does not raise: if the worker is dead, the request's own generator says so.
        """
        if self._process is not None:
            with suppress(WorkerDied):
                await self._process.client.cancel(request_id)

    async def stats(self) -> EngineStats:
        return await self._call(lambda client: client.stats())

    async def set_limits(self, kv_limit_bytes: int | None, memory_limit_bytes: int | None) -> int:
        """For this worker and later ones; None: as before. Returns by how many bytes what is in use exceeds
        the new limits: what running requests hold of it goes as they finish.
        """
        self._memory.set_limits(kv_limit_bytes, memory_limit_bytes)
        return await self._call(lambda client: client.set_limits(kv_limit_bytes, memory_limit_bytes))

    async def lease(self, num_bytes: int) -> Leased:
        """Memory of the budget for somebody outside the worker; it outlives the worker."""
        process = await self._current()
        asked = asyncio.ensure_future(process.client.lease(num_bytes))
        try:
            leased = await asyncio.shield(asked)
        except WorkerDied as error:
            raise self._died(process) from error
        except asyncio.CancelledError:
            self._run_in_background(self._take_back(process, asked, num_bytes))
            raise
        if leased.granted:
            self._memory.leased_bytes += num_bytes
        return leased

    async def end_lease(self, num_bytes: int) -> None:
        """So much of what was leased is free again. Does not raise: a later worker is told what is left."""
        self._memory.leased_bytes -= num_bytes
        if self._process is not None:
            with suppress(WorkerDied):
                await self._process.client.end_lease(num_bytes)

    async def trim_kv(self) -> int:
        """Gives back all KV memory that no request needs now; how many bytes."""
        return await self._call(lambda client: client.trim_kv())

    async def sessions(self) -> list[SessionStatus]:
        """Those in memory, or that were there."""
        return await self._call(lambda client: client.sessions())

    async def save_session(self, model_id: str, name: str, path: Path) -> None:
        """Raises SessionError, CheckpointError."""
        await self._call(lambda client: client.save_session(model_id, name, path))

    async def load_session(self, model_id: str, name: str, path: Path) -> None:
        """Raises SessionError, CheckpointError."""
        await self._call(lambda client: client.load_session(model_id, name, path))

    async def remove_session(self, model_id: str, name: str) -> bool:
        """From memory; False if it was not there."""
        return await self._call(lambda client: client.remove_session(model_id, name))

    async def save_prefixes(self) -> None:
        """Before close(): has the worker keep on disk what it has cached, as far as that takes no more than a
        few seconds. Does not raise.
        """
        with suppress(TimeoutError):
            await asyncio.wait_for(self.ask(lambda client: client.save_prefixes()), _SAVE_TIMEOUT_S)

    async def ask(self, question: Callable[[Client], Awaitable[T]]) -> T | None:
        """What the worker answers; None while there is none. Neither waits for one nor starts one."""
        if self._process is None or self._closing:
            return None
        try:
            return await question(self._process.client)
        except WorkerDied:
            return None

    async def close(self) -> None:
        """Ends the worker; requests that still run fail."""
        self._closing = True
        tasks = [*self._background, *([self._ready] if self._ready else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._process is not None:
            await self._process.terminate()

    async def _bring(self, model_id: str, model: _Model, sleeps_in: Process | None) -> ModelInfo:
        process = await self._current()
        try:
            if process is sleeps_in:
                info = await process.client.wake(model_id)
            else:
                info = await process.client.load(model_id, model.path, model.weight, model.minimum_kv_bytes)
        except WorkerDied as error:
            raise self._died(process) from error
        except asyncio.CancelledError:
            self._run_in_background(self.unload(model_id))  # the worker may finish the load all the same
            raise
        self._asleep.pop(model_id, None)
        self._resident[model_id] = model
        return info

    async def _call(self, question: Callable[[Client], Awaitable[T]]) -> T:
        process = await self._current()
        try:
            return await question(process.client)
        except WorkerDied as error:
            raise self._died(process) from error

    async def _current(self) -> Process:
        ready = self._ready
        if self._closing:
            raise WorkerDied(SHUTTING_DOWN)
        if ready is None or (ready.done() and ready.exception() is not None):
            ready = self._replace(None)
        try:
            # Shielded: others wait for the same worker when this request is cancelled.
            return await asyncio.shield(ready)
        except asyncio.CancelledError:
            if ready.cancelled():
                raise WorkerDied(SHUTTING_DOWN) from None
            raise

    def _replace(self, dead: Process | None) -> asyncio.Task[Process]:
        self._ready = asyncio.create_task(self._start_worker(dead), name="start worker")
        self._ready.add_done_callback(_log_failure)
        return self._ready

    async def _start_worker(self, dead: Process | None) -> Process:
        if dead is not None:
            await dead.terminate()  # only its connection may be gone
        if self._num_failures > 1:
            await asyncio.sleep(min(_FIRST_DELAY_S * 2 ** (self._num_failures - 2), _MAX_DELAY_S))
        try:
            process = await self._spawn()
        except (OSError, WorkerDied) as error:
            self._num_failures += 1
            raise WorkerDied(f"model runner could not be started: {error}") from error
        self._process = process
        self.num_started += 1
        self._started_s = asyncio.get_running_loop().time()
        self._run_in_background(self._watch(process))
        await self._restore_memory(process)
        await self._reload(process)
        log.debug("worker %d is ready", process.pid)
        return process

    async def _restore_memory(self, process: Process) -> None:
        try:
            await self._memory.restore(process.client)
        except WorkerDied as error:
            raise self._died(process) from error

    async def _take_back(self, process: Process, asked: asyncio.Future[Leased], num_bytes: int) -> None:
        """A lease that nobody waits for any more."""
        with suppress(WorkerDied):
            if (await asked).granted:
                await process.client.end_lease(num_bytes)

    async def _reload(self, process: Process) -> None:
        for model_id, model in list(self._resident.items()):
            try:
                await process.client.load(model_id, *model)
            except (ModelLoadError, WorkerDied) as error:
                # Dropped even if the worker died of it: the next one must not die of it, too.
                self._resident.pop(model_id, None)
                self._on_lost(model_id, error)
                if isinstance(error, WorkerDied):
                    raise self._died(process) from error
            else:
                if model_id not in self._resident:  # unloaded meanwhile
                    await self.unload(model_id)

    async def _watch(self, process: Process) -> None:
        status = await process.wait()
        if not self._closing:
            log.error("worker %d has ended with status %d", process.pid, status)
            self._died(process)

    def _died(self, process: Process) -> WorkerDied:
        """Begins to replace a dead worker, once; returns the error for those who were using it."""
        if self._closing:
            return WorkerDied(SHUTTING_DOWN)
        if process is self._process:
            self._process = None
            lived_s = asyncio.get_running_loop().time() - self._started_s
            self._num_failures = 1 if lived_s >= _HEALTHY_AFTER_S else self._num_failures + 1
            self._replace(process)
        return WorkerDied(RUNNER_STOPPED)

    def _run_in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)


def _log_failure(task: asyncio.Task[Process]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("%s", error, exc_info=None if isinstance(error, WorkerDied) else error)
