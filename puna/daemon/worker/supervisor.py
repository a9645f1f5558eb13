"""Keeps an engine worker running, and in it the models that are resident."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeVar

from puna.backends.base import ModelInfo, ModelLoadError, ModelSource
from puna.daemon.worker.memory import WorkersMemory
from puna.daemon.worker.restarting_child import Process, ProcessStatus, RestartingChild
from puna.engine.memory.offers import Short
from puna.engine.request import Request, StepOutput
from puna.worker.call_client import WorkerDied
from puna.worker.calls import Call, Caller
from puna.worker.engine.messages import (
    Hold,
    Load,
    LoadAdapter,
    Ready,
    SavePrefixes,
    SetVocabulary,
    Sleep,
    Unload,
    UnloadAdapter,
    Wake,
)

log = logging.getLogger(__name__)
R = TypeVar("R")

_SAVE_TIMEOUT_S = 6.0
"""The worker itself stops writing after five."""


class Client(Caller, Protocol):
    """As puna.worker.engine.client.EngineClient; every method raises WorkerDied."""

    on_short: Callable[[Short], None]

    def tell(self, message: Hold) -> None: ...
    def stream(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[StepOutput]]: ...


class EngineProcess(Process, Protocol):
    """As puna.worker.engine.process.WorkerProcess."""

    @property
    def client(self) -> Client: ...
    @property
    def ready(self) -> Ready: ...


@dataclass(slots=True)
class _Model:
    """The arguments for loading a model again."""

    source: ModelSource
    name: str
    share: float
    guaranteed_kv_bytes: int
    is_held: bool = True
    vocabulary: list[int] | None = None
    """Descriptors: its token table, and the vocabulary itself."""
    adapters: dict[str, ModelSource] = field(default_factory=dict)
    """By id."""


class _Sleeper(NamedTuple):
    model: _Model
    process: EngineProcess
    """The worker that has it; in another one it must be loaded."""


class WorkerSupervisor:
    """An engine worker that is always there, or on its way.

    spawn: starts a worker process. memory: what it shares with other workers; None: it has no limits.
    on_lost: told the id of a model that could not be loaded again after a restart, and why.
    All methods raise WorkerDied, with a text for users, when the worker dies or cannot be started.
    """

    def __init__(
        self,
        spawn: Callable[[], Awaitable[EngineProcess]],
        memory: WorkersMemory | None,
        on_lost: Callable[[str, Exception], None],
        name: str = "worker",
    ) -> None:
        self._name = name
        self._child: RestartingChild[EngineProcess] = RestartingChild(name, spawn, self._prepare)
        self._on_lost = on_lost
        self._resident: dict[str, _Model] = {}
        self._asleep: dict[str, _Sleeper] = {}
        self._memory = memory

    @property
    def num_started(self) -> int:
        """Workers so far."""
        return self._child.num_started

    @property
    def status(self) -> ProcessStatus | None:
        """None: there is no worker."""
        process = self._child.process
        return None if process is None else ProcessStatus(self._name, process.pid, process.ready.cage)

    def start(self) -> None:
        """Begins to start the worker, so that the first request finds it ready."""
        self._child.start()

    async def call(self, message: Call[R], descriptors: Sequence[int] = ()) -> R:
        """For messages that need not be repeated to later workers. Raises what the message says."""
        process = await self._child.current()
        try:
            return await process.client.call(message, descriptors)
        except WorkerDied as error:
            raise self._child.died(process) from error

    async def ask(self, message: Call[R]) -> R | None:
        """The worker's answer; None while there is no worker: it is neither waited for nor started."""
        if self._child.process is None or self._child.is_closing:
            return None
        try:
            return await self._child.process.client.call(message)
        except WorkerDied:
            return None

    async def load(
        self,
        model_id: str,
        source: ModelSource,
        share: float = 1.0,
        guaranteed_kv_bytes: int = 0,
        name: str | None = None,
    ) -> ModelInfo:
        """Makes a model resident, also in later workers. Raises ModelLoadError, ModelDoesNotFit.

        source: stays the caller's, who keeps it open until unload().
        name: for error texts. share: of the device while other models are busy, too. guaranteed_kv_bytes: KV
        memory that no other model takes.
        """
        return await self._bring(
            model_id, _Model(source, name or source.name, share, guaranteed_kv_bytes), None
        )

    def hold(self, model_id: str, *, is_held: bool) -> None:
        """Whether requests may come to a model: if not, it may fall asleep to make room for others. One that
        was just loaded or woken is held. Does not raise.
        """
        if model := self._resident.get(model_id):
            model.is_held = is_held
            if self._child.process is not None:
                with suppress(WorkerDied):
                    self._child.process.client.tell(Hold(model_id, is_held))

    async def set_vocabulary(self, model_id: str, token_table: int, vocabulary: int) -> None:
        """Of a resident model, whose replies have text then; descriptors as `source` in load(). Raises
        ModelLoadError.
        """
        model = self._resident.get(model_id)
        if model is None:
            raise ModelLoadError("the model was lost with its worker")
        model.vocabulary = [token_table, vocabulary]
        await self.call(SetVocabulary(model_id), model.vocabulary)

    async def load_adapter(self, model_id: str, adapter_id: str, source: ModelSource) -> int:
        """Has requests to a resident model find an adapter, also in later workers; source: as in load().
        The bytes that it takes. Raises ModelLoadError, ModelDoesNotFit.
        """
        num_bytes = await self.call(LoadAdapter(model_id, adapter_id, source.name), source.descriptors)
        if model := self._known(model_id):  # perhaps it fell asleep meanwhile
            model.adapters[adapter_id] = source
        return num_bytes

    async def unload_adapter(self, model_id: str, adapter_id: str) -> None:
        """Gives its memory back. Does not raise."""
        if model := self._known(model_id):
            model.adapters.pop(adapter_id, None)
        await self._tell(UnloadAdapter(model_id, adapter_id))

    async def unload(self, model_id: str) -> None:
        """Gives the model's memory back. Does not raise: with a dead worker, it is already gone."""
        self._resident.pop(model_id, None)
        self._asleep.pop(model_id, None)
        await self._tell(Unload(model_id))

    async def sleep(self, model_id: str) -> bool:
        """The model gives its memory back. It can be woken, but is not loaded in later workers. False: it
        cannot, because its worker has died or could not load it again.
        """
        try:
            process = await self._child.current()  # which has loaded the model again, if it is a new one
            model = self._resident.pop(model_id, None)
            if model is None:
                return False
            self._asleep[model_id] = _Sleeper(model, process)  # first: adapters go from it meanwhile
            await process.client.call(Sleep(model_id))
        except WorkerDied:
            self._asleep.pop(model_id, None)
            return False
        return True

    async def wake(self, model_id: str) -> ModelInfo:
        """Makes a model resident that sleeps. Raises ModelLoadError; it then sleeps on."""
        sleeper = self._asleep.get(model_id)
        if sleeper is None:
            raise ModelLoadError("the model is not asleep")
        return await self._bring(model_id, *sleeper)

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncGenerator[AsyncIterator[StepOutput], None]:
        """The request's outputs; leaving the context cancels the request."""
        process = await self._child.current()
        try:
            async with process.client.stream(request) as outputs:
                yield outputs
        except WorkerDied as error:
            raise self._child.died(process) from error

    async def save_prefixes(self) -> None:
        """Before close(): has the worker keep on disk what it has cached, as far as that takes no more than a
        few seconds. Does not raise.
        """
        with suppress(TimeoutError):
            await asyncio.wait_for(self.ask(SavePrefixes()), _SAVE_TIMEOUT_S)

    async def close(self) -> None:
        """Ends the worker; requests that still run fail."""
        await self._child.close()

    def _known(self, model_id: str) -> _Model | None:
        """Awake or asleep."""
        sleeper = self._asleep.get(model_id)
        return self._resident.get(model_id) or (sleeper.model if sleeper else None)

    async def _tell(self, message: Call[R]) -> None:
        """To a worker that is there."""
        if self._child.process is not None:
            with suppress(WorkerDied):
                await self._child.process.client.call(message)

    async def _bring(self, model_id: str, model: _Model, sleeps_in: EngineProcess | None) -> ModelInfo:
        process = await self._child.current()
        try:
            if process is sleeps_in:
                info = await process.client.call(Wake(model_id))
            else:
                info = await _load(process, model_id, model)
        except WorkerDied as error:
            raise self._child.died(process) from error
        except asyncio.CancelledError:
            # The worker may finish the load all the same.
            self._child.run_in_background(self.unload(model_id))
            raise
        self._asleep.pop(model_id, None)
        self._resident[model_id] = model
        return info

    async def _prepare(self, process: EngineProcess) -> None:
        """Brings what outlives workers into a new one."""
        if self.num_started == 1 and (warning := process.ready.cage.warning):
            log.warning("the process of %s is %s", self._name, warning)
        if self._memory is not None:
            await self._memory.restore(self, process.client, process.ready)
        for model_id, model in list(self._resident.items()):
            if model_id not in self._resident:  # unloaded meanwhile
                continue
            try:
                await _load(process, model_id, model)
            except (ModelLoadError, WorkerDied) as error:
                # Dropped even if the worker died of it: the next one must not die of it, too.
                self._resident.pop(model_id, None)
                self._on_lost(model_id, error)
                if isinstance(error, WorkerDied):
                    raise
            else:
                if model_id not in self._resident:
                    await self.unload(model_id)


async def _load(process: EngineProcess, model_id: str, model: _Model) -> ModelInfo:
    source = model.source
    message = Load(
        model_id,
        model.name,
        model.share,
        model.guaranteed_kv_bytes,
        sees=bool(source.projector),
        has_drafter=bool(source.drafter),
    )
    descriptors = [*source.descriptors, *source.drafter, *source.empty, *source.projector]
    info = await process.client.call(message, descriptors)
    if not model.is_held:
        process.client.tell(Hold(model_id, is_held=False))
    for adapter_id, source in list(model.adapters.items()):
        if adapter_id not in model.adapters:  # unloaded meanwhile, and its file is closed
            continue
        await process.client.call(LoadAdapter(model_id, adapter_id, source.name), source.descriptors)
    if model.vocabulary is not None:
        await process.client.call(SetVocabulary(model_id), model.vocabulary)
    return info
