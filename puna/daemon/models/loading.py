"""Brings models into memory and out of it again: weights in the worker, vocabularies in sealed memory."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from puna.backends.base import ModelInfo, ModelLoadError, ModelSource
from puna.config.settings import Settings, SettingsError
from puna.daemon.models.adapters import ModelAdapters
from puna.daemon.models.residency import Residency
from puna.daemon.opening import ModelOpener
from puna.daemon.text.model import TextModel
from puna.daemon.text.pool import TextPool
from puna.daemon.worker.engines import Engines, LoadWishes
from puna.engine.memory.load_errors import ModelDoesNotFit
from puna.gguf import GgufError
from puna.registry import InvalidModelName, ModelName, StoredModel
from puna.tokenizer.errors import TokenizerError

log = logging.getLogger(__name__)
T = TypeVar("T")


@dataclass(slots=True)
class LoadedModel:
    """A GGUF file in memory, shared by all requests to it, also while it sleeps."""

    id: str
    model: StoredModel
    """Of the name that loaded it."""
    source: ModelSource
    """Its file, open until it is unloaded: what is loaded again is what was loaded."""
    info: ModelInfo
    text: TextModel
    context_length: int
    """Of its latest request."""
    adapters: ModelAdapters
    wishes: LoadWishes
    """Those with which it was loaded."""
    projector: str = ""
    """Id of the one by which it sees; empty: it does not see."""
    plain: StoredModel | None = None
    """The first name without an adapter by which it was asked for."""

    async def leave(self, model: StoredModel) -> bool:
        """Unloads what nobody but the name `model` needs of it, now or when its last request ends. False:
        that is all of it, and left to the caller.
        """
        path = model.adapter_path
        others = [entry for entry in self.adapters.loaded() if entry.model.adapter_path != path]
        if path is None:
            self.plain = None
        else:
            await self.adapters.unload(path.name)
        return bool(others or self.plain)


class ModelLoader:
    """Loads, wakes, puts to sleep and unloads.

    Raises SettingsError for what is set about something that cannot be a model.
    """

    def __init__(self, settings: Settings, engines: Engines, text: TextPool, opener: ModelOpener) -> None:
        self._timeout_s = None if settings.load_timeout_s == math.inf else settings.load_timeout_s
        self._engines = engines
        self._text = text
        self._opener = opener
        self._keep_alive_s = settings.keep_alive_s
        self._shares = _by_model("PUNA_MODEL_SHARES", settings.model_shares)
        self._guarantees = _by_model("PUNA_MODEL_KV_MIN", settings.kv_guarantees)
        self.residency: Residency[LoadedModel] = Residency(
            self,
            keep_alive_s=settings.keep_alive_s,
            max_loaded=settings.max_loaded_models,
            max_waiting=settings.max_queue,
        )
        self._blind: dict[str, tuple[str, ModelLoadError]] = {}
        """Models that could not be loaded with a projector, by id: its id, and why."""
        self.names: dict[str, str] = {}
        """The first under which weights were loaded, by id: what is measured must not change its name."""

    async def load(self, model: StoredModel, wishes: LoadWishes = LoadWishes()) -> LoadedModel:  # noqa: B008
        """Raises ModelLoadError, UnsupportedModel, WorkerDied."""
        model.check_loadable()
        await self.unload_deleted()  # perhaps its name had other weights before
        work = self._with_room(lambda: self._load_parts(model, wishes))
        try:
            return await self._timed("loaded", model.name.short, work)
        except ModelDoesNotFit:
            raise
        except ModelLoadError as error:
            if wishes.sees:
                self._blind[model.weights_id] = (_projector_id(model), error)
            raise

    @asynccontextmanager
    async def hold(
        self, model: StoredModel, wishes: LoadWishes, keep_alive_s: float | None
    ) -> AsyncIterator[LoadedModel]:
        """As Residency.hold(). A model that is there but does not see what is wished, or whose context could
        be longer, takes no more requests: when its last one is done, a server follows it.

        Where it has turned out that no server can follow it, it stays, and who wants it to see is told why.
        """
        while True:
            wishes = await self._lose_unfit(model, wishes)
            load = partial(self.load, model, wishes)
            async with self.residency.hold(model.weights_id, load, keep_alive_s) as loaded:
                if not _is_unfit(loaded, model, wishes):  # as it may be if others have had it loaded
                    yield loaded
                    return

    async def _lose_unfit(self, model: StoredModel, wishes: LoadWishes) -> LoadWishes:
        """Those for the model that follows. Raises ModelLoadError."""
        loaded = self.residency.get(model.weights_id)
        if loaded is None or not _is_unfit(loaded, model, wishes):
            return wishes
        if wishes.sees and (blind := self._blind.get(loaded.id)) and blind[0] == _projector_id(model):
            raise type(blind[1])(str(blind[1]))
        if loaded.info.engine != "native":
            earlier = loaded.wishes
            if loaded.projector != _projector_id(model):
                earlier = replace(earlier, sees=False)  # with another name's
            wishes = self._engines.merged(wishes, earlier, loaded.info.context_length)
        self.residency.lose(loaded.id)
        await self.residency.unload(loaded.id)
        return wishes

    async def wake(self, model: LoadedModel) -> None:
        """Raises ModelLoadError, WorkerDied."""
        model.info = await self._timed(
            "woke",
            model.model.name.short,
            self._with_room(lambda: self._engines.of(model.id).wake(model.id)),
        )

    async def sleep(self, model: LoadedModel) -> bool:
        """False: it was deleted or its worker is dead, so it is to be unloaded."""
        if not await asyncio.to_thread(model.model.model_path.exists):
            return False
        is_asleep = await self._engines.sleep(model.id)
        if is_asleep:
            log.info("%s sleeps", model.model.name.short)
        return is_asleep

    def set_held(self, model: LoadedModel, *, is_held: bool) -> None:
        self._engines.of(model.id).hold(model.id, is_held=is_held)

    async def unload(self, model: LoadedModel) -> None:
        self._blind.pop(model.id, None)
        await self._engines.unload(model.id)
        await model.adapters.close()
        model.source.close()
        self._text.close_model(model.text)
        log.info("unloaded %s", model.model.name.short)

    async def unload_deleted(self) -> None:
        """Unloads sleeping models and idle adapters whose file is deleted, which they keep on disk."""
        asleep = self.residency.asleep()
        for model in [*asleep, *(entry.ready.result() for entry in self.residency.loaded())]:
            await model.adapters.unload_deleted()
        for model in await asyncio.to_thread(_deleted, asleep):
            await self.residency.unload(model.id)

    async def _timed(self, what: str, name: str, work: Awaitable[T]) -> T:
        start_s = time.monotonic()
        try:
            result = await asyncio.wait_for(work, self._timeout_s)
        except TimeoutError:
            raise ModelLoadError(f"loading {name} took longer than {self._timeout_s:g} s") from None
        log.info("%s %s in %.3f s", what, name, time.monotonic() - start_s)
        return result

    async def _with_room(self, work: Callable[[], Awaitable[T]]) -> T:
        """What does not fit is tried again without a server that is idle: those give back nothing else."""
        while True:
            try:
                return await work()
            except ModelDoesNotFit:
                if (idle := self._idle_server()) is None:
                    raise
                await self.residency.unload(idle)

    def _idle_server(self) -> str | None:
        """The model of the one that was used longest ago."""
        idle = [
            entry
            for entry in self.residency.loaded()
            if not entry.num_holders and entry.ready.result().info.engine != "native"
        ]
        return min(idle, key=lambda entry: entry.last_used_s).key if idle else None

    async def _load_parts(self, model: StoredModel, wishes: LoadWishes) -> LoadedModel:
        """Both sides at the same time."""
        source = await self._opener.open(model, sees=wishes.sees)
        try:
            return await self._load_open(model, source, wishes)
        except BaseException:
            source.close()
            raise

    async def _load_open(self, model: StoredModel, source: ModelSource, wishes: LoadWishes) -> LoadedModel:
        share = self._shares.get(model.name.key, 1.0)
        guaranteed = self._guarantees.get(model.name.key, 0)
        opening = asyncio.create_task(self._open_text(source))
        try:
            info = await self._engines.load(
                model.weights_id, source, share, guaranteed, model.name.short, wishes
            )
        except BaseException:
            opening.cancel()
            with suppress(Exception, asyncio.CancelledError):
                self._text.close_model(await opening)
            raise
        try:
            text = await opening
        except BaseException:
            await self._engines.unload(model.weights_id)
            raise
        try:
            if text.side.is_stand_in and info.engine == "native":
                info = await self._engines.load_elsewhere(
                    model.weights_id, source, model.name.short, wishes, text.side.unknown
                )
            worker = self._engines.of(model.weights_id)
            await worker.set_vocabulary(model.weights_id, text.token_table, text.vocabulary)
        except BaseException:
            await self._engines.unload(model.weights_id)
            self._text.close_model(text)
            raise
        self.names.setdefault(model.weights_id, model.name.short)
        adapters = ModelAdapters(model.weights_id, self._engines.of(model.weights_id), self._keep_alive_s)
        return LoadedModel(
            model.weights_id,
            model,
            source,
            info,
            text,
            info.context_length,
            adapters,
            wishes,
            projector=_projector_id(model) if wishes.sees else "",
        )

    async def _open_text(self, source: ModelSource) -> TextModel:
        """Raises ModelLoadError, WorkerDied."""
        try:
            return await self._text.open_model(source)
        except (GgufError, TokenizerError) as error:
            raise ModelLoadError(str(error)) from error


def _is_unfit(loaded: LoadedModel, model: StoredModel, wishes: LoadWishes) -> bool:
    """For a request to the name `model`."""
    lacks_eyes = wishes.sees and loaded.projector != _projector_id(model)
    longest = min(wishes.num_ctx or 0, loaded.info.most_context)
    return lacks_eyes or loaded.info.context_length < longest


def _projector_id(model: StoredModel) -> str:
    return (model.projector_path or model.model_path).name


def _by_model(variable: str, values: Iterable[tuple[str, T]]) -> dict[tuple[str, ...], T]:
    """By ModelName.key. Raises SettingsError."""
    by_model: dict[tuple[str, ...], T] = {}
    for name, value in values:
        try:
            key = ModelName.parse(name).key
        except InvalidModelName as error:
            raise SettingsError(f"{variable}: {error}: {name}") from error
        if key in by_model:
            raise SettingsError(f"{variable}: {name} comes twice")
        by_model[key] = value
    return by_model


def _deleted(models: list[LoadedModel]) -> list[LoadedModel]:
    return [model for model in models if not model.model.model_path.exists()]
