"""The engines: the native one's worker for all models that it runs, and for each other model a worker that
hosts llama.cpp's server.
"""

from __future__ import annotations

import asyncio
import logging
import os
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from puna.backends.base import CannotSee, ModelInfo, ModelLoadError, ModelSource, UnsupportedModelFile
from puna.config.settings import Settings
from puna.config.sizes import binary_size
from puna.daemon.worker.memory import WorkersMemory
from puna.daemon.worker.restarting_child import ProcessStatus
from puna.daemon.worker.supervisor import EngineProcess, WorkerSupervisor
from puna.engine.memory.load_errors import ModelDoesNotFit
from puna.engine.request import Request, StepOutput
from puna.registry.in_thread import in_thread
from puna.worker.engine.process import WorkerProcess
from puna.worker.llamacpp.finding import NoServer, find_server
from puna.worker.llamacpp.messages import ServerSettings, StartServer

log = logging.getLogger(__name__)

_DEFAULT_CONTEXT = 4096
"""Where nobody says what is wanted: the memory for all of it is taken at once."""
_DEFAULT_SLOTS = 4


@dataclass(frozen=True, slots=True)
class LoadWishes:
    """What the request that loads a model asks of a server; the native engine needs none of it."""

    num_ctx: int | None = None
    num_gpu: int | None = None
    """Layers on GPUs; None: as the server chooses."""
    sees: bool = False
    """There are images in it: then a server it must be."""


@dataclass(slots=True)
class _Hosted:
    """A model in a server."""

    supervisor: WorkerSupervisor
    empty: int
    """Of the file that it may be written anew into."""
    leased: tuple[int, int] = (0, 0)
    """Bytes of its own, and of weights."""

    async def close(self) -> None:
        await self.supervisor.close()
        os.close(self.empty)


class Engines:
    """The workers by model. Methods that WorkerSupervisor has, too, do what they do there.

    native: the native engine's. memory: of which servers lease what they take. spawn: starts the worker of a
    server; by default a real one.
    """

    def __init__(
        self,
        settings: Settings,
        native: WorkerSupervisor,
        memory: WorkersMemory,
        on_lost: Callable[[str, Exception], None],
        spawn: Callable[[ServerSettings], Awaitable[EngineProcess]] | None = None,
    ) -> None:
        self._settings = settings
        self._native = native
        self._memory = memory
        self._on_lost = on_lost
        self._spawn = spawn or _spawn
        self._hosted: dict[str, _Hosted] = {}

    @property
    def processes(self) -> list[ProcessStatus]:
        """Those that are there."""
        supervisors = [self._native, *(hosted.supervisor for hosted in self._hosted.values())]
        return [status for supervisor in supervisors if (status := supervisor.status) is not None]

    def of(self, model_id: str) -> WorkerSupervisor:
        """The worker that has a model, or would if it was loaded."""
        hosted = self._hosted.get(model_id)
        return self._native if hosted is None else hosted.supervisor

    async def load(
        self,
        model_id: str,
        source: ModelSource,
        share: float,
        guaranteed_kv_bytes: int,
        name: str,
        wishes: LoadWishes,
    ) -> ModelInfo:
        """In the engine of choice. Raises ModelLoadError, CannotSee, ModelDoesNotFit, WorkerDied."""
        if wishes.sees:
            try:
                return await self._host(model_id, source, name, wishes)
            except NoServer as error:
                raise CannotSee(f"{name} does not see: {error}") from error
        if self._settings.engine == "llamacpp":
            try:
                return await self._host(model_id, source, name, wishes)
            except NoServer as error:
                raise ModelLoadError(str(error)) from error
        is_one_file = len(source.descriptors) <= 1
        if self._settings.engine == "auto" and not self._settings.prefers_native and is_one_file:
            with suppress(NoServer):
                return await self._host(model_id, source, name, wishes)
        try:
            return await self._native.load(model_id, source, share, guaranteed_kv_bytes, name)
        except UnsupportedModelFile as error:
            if self._settings.engine == "native":
                raise
            return await self._host_instead(model_id, source, name, wishes, error)

    async def load_elsewhere(
        self, model_id: str, source: ModelSource, name: str, wishes: LoadWishes, reason: str
    ) -> ModelInfo:
        """A model that the native engine has loaded, but cannot run. Raises as load()."""
        await self._native.unload(model_id)
        error = UnsupportedModelFile(f"{name}: {reason}")
        if self._settings.engine == "native":
            raise error
        return await self._host_instead(model_id, source, name, wishes, error)

    def merged(self, wishes: LoadWishes, earlier: LoadWishes, context_length: int) -> LoadWishes:
        """Of who has a server started again, and of those whom it served, with that context."""
        return LoadWishes(
            num_ctx=max(wishes.num_ctx or self._default_context, context_length),
            num_gpu=earlier.num_gpu if wishes.num_gpu is None else wishes.num_gpu,
            sees=wishes.sees or earlier.sees,
        )

    async def check_sees(self, name: str) -> None:
        """Raises CannotSee if images cannot be shown to any model."""
        try:
            if self._settings.engine == "native":
                raise NoServer("the native engine shows no images to models (PUNA_ENGINE)")
            await asyncio.to_thread(find_server, self._settings.llama_server)
        except NoServer as missing:
            raise CannotSee(f"{name} does not see: {missing}") from missing

    async def sleep(self, model_id: str) -> bool:
        """False: it is to be unloaded, as a server gives back its memory only when it ends."""
        return model_id not in self._hosted and await self._native.sleep(model_id)

    async def unload(self, model_id: str) -> None:
        if (hosted := self._hosted.pop(model_id, None)) is None:
            await self._native.unload(model_id)
            return
        await hosted.close()
        if any(hosted.leased):
            await self._memory.end_lease(self._native, *hosted.leased)

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncGenerator[AsyncIterator[StepOutput], None]:
        async with self.of(request.model_id).stream(request) as outputs:
            yield outputs

    async def close(self) -> None:
        """Ends all workers; requests that still run fail."""
        hosted, self._hosted = list(self._hosted.values()), {}
        await asyncio.gather(self._native.close(), *(each.close() for each in hosted))

    async def _host_instead(
        self, model_id: str, source: ModelSource, name: str, wishes: LoadWishes, error: UnsupportedModelFile
    ) -> ModelInfo:
        """Of a file that the native engine does not run. Raises `error` where llama.cpp does not, either."""
        try:
            return await self._host(model_id, source, name, wishes)
        except NoServer as missing:
            raise UnsupportedModelFile(f"{error}; {missing}") from error
        except ModelDoesNotFit:
            raise
        except ModelLoadError as other:
            raise UnsupportedModelFile(f"{error}; {other}") from error

    async def _host(self, model_id: str, source: ModelSource, name: str, wishes: LoadWishes) -> ModelInfo:
        """Raises NoServer, ModelLoadError, WorkerDied."""
        if len(source.descriptors) > 1:
            raise ModelLoadError(f"{name}: llama.cpp runs models in one GGUF file only: create one")
        settings = await asyncio.to_thread(self._server_settings, wishes)
        empty = await in_thread(lambda _: _open_empty(self._settings.models), os.close)
        supervisor = WorkerSupervisor(lambda: self._spawn(settings), None, self._on_lost, name="llama.cpp")
        hosted = self._hosted[model_id] = _Hosted(supervisor, empty)
        try:
            info = await supervisor.load(model_id, replace(source, drafter=(), empty=(empty,)), name=name)
            taken = info.scratch_bytes, info.weight_bytes - info.idle_weight_bytes
            leased = await self._memory.lease(self._native, *taken)
            if not leased.granted:
                own, weights = map(binary_size, taken)
                raise ModelDoesNotFit(
                    f"{name} takes {own} in llama.cpp's server, and {weights} of weights; "
                    f"{binary_size(leased.available_bytes)} are available"
                )
            hosted.leased = taken
        except BaseException:
            await self.unload(model_id)
            raise
        log.info("%s is served by llama.cpp", name)
        return info

    @property
    def _default_context(self) -> int:
        return self._settings.context_length or _DEFAULT_CONTEXT

    def _server_settings(self, wishes: LoadWishes) -> ServerSettings:
        settings = self._settings
        return ServerSettings(
            program=find_server(settings.llama_server).program,
            arguments=list(settings.llama_server_args),
            directory=str(settings.state_key.parent / "run"),
            context_length=wishes.num_ctx or self._default_context,
            num_slots=settings.max_running or _DEFAULT_SLOTS,
            num_threads=settings.num_threads,
            kv_type=settings.kv_type,
            max_queue=settings.max_queue,
            debug=settings.debug,
            num_gpu_layers=wishes.num_gpu,
        )


def _open_empty(models: Path) -> int:
    """A file without a name: where the models' are, with which it may share parts, or, if nothing can be
    written there, where the system has temporary ones. Raises ModelLoadError.
    """
    for directory in (models, None):
        with suppress(OSError), tempfile.TemporaryFile(dir=directory) as file:
            return os.dup(file.fileno())
    raise ModelLoadError(f"no file can be made in {models}, nor a temporary one")


async def _spawn(settings: ServerSettings) -> EngineProcess:
    return await WorkerProcess.start_as("puna.worker.llamacpp", StartServer(settings))
