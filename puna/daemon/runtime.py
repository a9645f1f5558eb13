"""The daemon as the HTTP faces use it: resident models, and the text that they generate."""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import datetime

from puna.backends.base import Engine, ModelInfo
from puna.config.settings import Settings
from puna.daemon.converting import Converter
from puna.daemon.models.drafts import DraftModels
from puna.daemon.models.loading import LoadedModel, ModelLoader
from puna.daemon.odd_settings import odd_settings
from puna.daemon.opening import ModelOpener
from puna.daemon.request_context import REQUEST_ID
from puna.daemon.sessions import SessionManager
from puna.daemon.text.model import TextModel
from puna.daemon.text.pool import TextPool
from puna.daemon.worker.engines import Engines, LoadWishes
from puna.daemon.worker.memory import WorkersMemory
from puna.daemon.worker.restarting_child import ProcessStatus
from puna.daemon.worker.settings import worker_settings
from puna.daemon.worker.supervisor import EngineProcess, WorkerSupervisor
from puna.engine.observation.stats import EngineStats, ModelStats
from puna.engine.observation.trace import EngineTrace
from puna.engine.request import Request, StepOutput
from puna.kv.files.state_key import find_key
from puna.registry import ModelConfig, ModelName, ModelNotFound, Store, StoredModel
from puna.registry.local.local_models import LocalModels
from puna.registry.store.pruning import clear_up
from puna.worker.call_client import WorkerDied
from puna.worker.engine.messages import EraseModel, GetStats, GetTrace, Leased
from puna.worker.engine.process import WorkerProcess
from puna.worker.llamacpp.messages import ServerSettings

log = logging.getLogger(__name__)

_ANSWER_TIMEOUT_S = 5.0
_MOMENT_S = 0.05
_LIST_TIMEOUT_S = 1.0
"""It answers between two steps; a list of models need not wait for a long one."""


@dataclass(frozen=True, slots=True)
class LoadedStatus:
    """One resident model, for lists."""

    name: str
    """Short form of the name that loaded it; others may share its weights."""
    digest: str
    size: int
    """Bytes of weights."""
    expires_at: datetime
    context_length: int
    """Of its latest request."""
    config: ModelConfig
    engine: Engine
    kv: ModelStats | None
    """None: not known now."""


@dataclass(frozen=True, slots=True)
class Observation:
    """The worker's state at one moment."""

    stats: EngineStats | None
    """None: no worker is there."""
    num_worker_starts: int
    model_names: Mapping[str, str]
    """Short names by model id, of every model that ever was resident."""


@dataclass(frozen=True, slots=True)
class ResidentModel:
    """A loaded model as one request sees it; valid while the request holds it."""

    model: StoredModel
    info: ModelInfo
    text: TextModel
    context_length: int
    """Longest prompt and answer together, in tokens."""
    load_duration_ns: int
    """How long this request waited for the model."""
    adapter: str = ""
    """Id of the LoRA adapter that the name has; empty: none."""
    draft_model_id: str | None = None
    """Of the model that drafts for it, resident as well."""

    @property
    def takes_text(self) -> bool:
        """Whether its engine makes tokens of texts rather than we, because it knows more of its tokenizer."""
        return self.info.engine != "native" and bool(self.text.side.unknown)


class Runtime:
    """The store, the resident models, the worker that runs them and the processes that know their text.

    spawn: starts a worker process; by default a real one, with these settings. text, spawn_server: likewise.
    Raises SettingsError for a weight of what cannot be a model.
    """

    def __init__(
        self,
        settings: Settings,
        spawn: Callable[[], Awaitable[EngineProcess]] | None = None,
        text: TextPool | None = None,
        spawn_server: Callable[[ServerSettings], Awaitable[EngineProcess]] | None = None,
    ) -> None:
        self.settings = settings
        local = LocalModels(*settings.local_models, settings.in_place)
        self.store = Store(settings.models, settings.read_only_models, local)
        self._memory = WorkersMemory()
        self.worker = WorkerSupervisor(spawn or self._spawn, self._memory, self._lost)
        self._engines = Engines(settings, self.worker, self._memory, self._lost, spawn_server)
        self.text = text or TextPool()
        self.opener = ModelOpener(Converter(), local)
        self._loader = ModelLoader(settings, self._engines, self.text, self.opener)
        self._residency = self._loader.residency
        self._drafts = DraftModels(self.store, self._loader)
        self.sessions = SessionManager(
            settings.sessions, settings.state_key, self.store, self.worker, self.resident
        )
        self._request_numbers = itertools.count(1)

    async def start(self) -> None:
        """Begins to start the worker, says what is odd about the settings, and clears up what killed
        processes left on disk.
        """
        self.worker.start()
        self.text.start()
        for warning in await asyncio.to_thread(odd_settings, self.settings, self.store):
            log.warning(warning)
        await asyncio.to_thread(clear_up, self.store, prunes=not self.settings.no_prune)
        await self.sessions.remove_leftovers()

    async def save_prefixes(self) -> None:
        """Before close(): keeps on disk what is cached, if that takes no more than a few seconds."""
        await self.worker.save_prefixes()

    async def close(self) -> None:
        """Ends the worker; requests that still run fail with WorkerDied."""
        await self._memory.close()
        await self._engines.close()
        await self._residency.close()
        await self.opener.close()
        await self.text.close()

    @asynccontextmanager
    async def resident(
        self,
        wanted: str | StoredModel,
        *,
        num_ctx: int | None = None,
        keep_alive: float | None = None,
        draft_model: str | None = None,
        num_gpu: int | None = None,
        sees: bool = False,
    ) -> AsyncIterator[ResidentModel]:
        """Holds a model resident inside the context, loading it if needed.

        wanted: its name, or as it was found in the store.
        num_ctx: context length wanted, in tokens; by default that of the settings, else the model's own
            limit, which is never exceeded.
        keep_alive: seconds the model stays after its last request, math.inf for ever; None: as before.
        num_gpu: layers on GPUs, for a model that llama.cpp's server runs and that is not there yet.
        draft_model: name of a model that drafts for it, by default the one that it brings along; held as well
            unless it would have to wait for room.
        sees: images are to be shown to it.
        Raises the registry's errors, ModelLoadError, CannotSee, WorkerDied, ServerBusy.
        """
        start_ns = time.monotonic_ns()
        if isinstance(wanted, str):
            wanted = await asyncio.to_thread(self.store.find, ModelName.parse(wanted))
        model = wanted
        model.check_loadable()
        if sees:
            await self._engines.check_sees(model.name.short)
        async with (
            self._loader.hold(model, LoadWishes(num_ctx, num_gpu, sees), keep_alive) as loaded,
            self._drafts.hold(loaded, model, draft_model) as draft_model_id,
            loaded.adapters.hold(model, keep_alive) as adapter,
        ):
            if not adapter:
                loaded.plain = loaded.plain or model
            context = num_ctx or self.settings.context_length or loaded.info.context_length
            loaded.context_length = min(context, loaded.info.context_length)
            yield ResidentModel(
                model=model,
                info=loaded.info,
                text=loaded.text,
                context_length=loaded.context_length,
                load_duration_ns=time.monotonic_ns() - start_ns,
                adapter=adapter,
                draft_model_id=draft_model_id,
            )

    def new_request_id(self) -> str:
        """No two requests have the same; it begins with the id of the HTTP request, if it is for one."""
        number = next(self._request_numbers)
        return f"{request_id}.{number}" if (request_id := REQUEST_ID.get()) else str(number)

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[AsyncIterator[StepOutput]]:
        """The request's outputs, step by step, until one has a finish_reason; its model is held meanwhile.

        Leaving the context cancels the request. Raises WorkerDied.
        """
        async with self._engines.stream(request) as outputs:
            yield outputs

    async def delete(self, name: ModelName) -> None:
        """From the store and from memory, and its cached KV on disk; requests that run may finish.
        Raises the registry's errors.
        """
        local = await asyncio.to_thread(self.store.local.find, name)
        model_ids = await asyncio.to_thread(self.store.delete, name)
        model_ids.update(self._ids_of(local.name if local else name))
        await self._loader.unload_deleted()
        kept = {model.weights_id for model in await asyncio.to_thread(self.store.list)}
        for model_id in model_ids - kept:
            try:
                await asyncio.wait_for(self.worker.call(EraseModel(model_id)), _ANSWER_TIMEOUT_S)
            except (TimeoutError, WorkerDied) as error:
                log.warning("cached prefixes of %s may still be on disk: %r", name.short, error)
            await self._residency.unload(model_id)  # it would keep the disk from having its space

    async def unload(self, name: str) -> None:
        """Unloads a model, now or when its last request ends; of what other names share with it, nothing.
        Raises the registry's errors.
        """
        model_name = ModelName.parse(name)
        try:
            model = await asyncio.to_thread(self.store.find, model_name)
            model_id = model.weights_id
            for entry in self._residency.loaded():
                if entry.key == model_id and await entry.ready.result().leave(model):
                    return
        except ModelNotFound:
            deleted = self._ids_of(model_name)
            if not deleted:
                raise
            model_id = deleted[0]
        await self._residency.unload(model_id)

    def _ids_of(self, name: ModelName) -> list[str]:
        """Of what was loaded by this name and is still there, also of what it meant before."""
        there = [*(entry.ready.result() for entry in self._residency.loaded()), *self._residency.asleep()]
        return [other.id for other in there if other.model.name.key == name.key]

    def processes(self) -> list[ProcessStatus]:
        """Those that run for the daemon."""
        return [*self._engines.processes, *self.text.processes]

    async def loaded(self) -> list[LoadedStatus]:
        """The resident models that are awake, last to expire first. Does not wait for a worker to start."""
        stats = None
        with suppress(TimeoutError):
            stats = await asyncio.wait_for(self.worker.ask(GetStats()), _LIST_TIMEOUT_S)
        by_id = {model.model_id: model for model in stats.models} if stats else {}
        return [
            LoadedStatus(
                name=model.name.short,
                digest=model.digest,
                size=loaded.info.weight_bytes + adapter_bytes,
                expires_at=min(entry.expires_at, expires_at or entry.expires_at),
                context_length=loaded.context_length,
                config=model.config,
                engine=loaded.info.engine,
                kv=by_id.get(loaded.id),
            )
            for entry in self._residency.loaded()
            for loaded in [entry.ready.result()]
            if loaded.id not in by_id or not by_id[loaded.id].is_asleep
            for model, adapter_bytes, expires_at in _names(loaded)
        ]

    async def observe(self, *, wait: bool = False) -> Observation:
        """Loads no model. wait: for a worker that starts, so that there are statistics.

        Raises TimeoutError if the worker does not answer, and WorkerDied if it was waited for.
        """
        asking = self.worker.call(GetStats()) if wait else self.worker.ask(GetStats())
        stats = await asyncio.wait_for(asking, _ANSWER_TIMEOUT_S)
        return Observation(stats, self.worker.num_started, dict(self._loader.names))

    async def lease(self, num_bytes: int) -> Leased:
        """KV memory for somebody outside the worker; it outlives the worker. Idle models fall asleep if that
        helps. Raises WorkerDied.
        """
        return await self._memory.lease(self.worker, num_bytes)

    async def end_lease(self, num_bytes: int) -> None:
        """So much of what was leased is free again."""
        await self._memory.end_lease(self.worker, num_bytes)

    async def set_limits(self, kv_limit_bytes: int | None, memory_limit_bytes: int | None) -> int:
        """None: as before. Idle models fall asleep where the memory limit wants it. Returns what is taken
        beyond the new limits: see describe_excess(). Raises WorkerDied.
        """
        excess = await self._memory.set_limits(self.worker, kv_limit_bytes, memory_limit_bytes)
        if excess:  # what files are made of goes in a moment
            await asyncio.sleep(_MOMENT_S)
            excess = await self._memory.set_limits(self.worker, None, None)
        return excess

    async def trace(self, seconds: float | None) -> tuple[EngineTrace | None, Mapping[str, str]]:
        """The engine's events of the last `seconds` (None: all that it still knows; None if there is no
        worker), and the models' names by id. Raises TimeoutError as observe() does.
        """
        asking = self.worker.ask(GetTrace(seconds))
        return await asyncio.wait_for(asking, _ANSWER_TIMEOUT_S), dict(self._loader.names)

    async def _spawn(self) -> EngineProcess:
        key = await asyncio.to_thread(find_key, self.settings.state_key)
        return await WorkerProcess.start(worker_settings(self.settings, key))

    def _lost(self, model_id: str, error: Exception) -> None:
        log.warning("%s is no longer loaded: %s", self._loader.names.get(model_id, model_id), error)
        self._residency.lose(model_id)


def _names(loaded: LoadedModel) -> list[tuple[StoredModel, int, datetime | None]]:
    """Under which a model is in memory, the bytes of their adapters, and when these go."""
    adapters = [(entry.model, entry.ready.result(), entry.expires_at) for entry in loaded.adapters.loaded()]
    return [*([(loaded.plain or loaded.model, 0, None)] if loaded.plain or not adapters else []), *adapters]
