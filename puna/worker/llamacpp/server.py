"""Answers the daemon's messages with what llama.cpp's server does."""

from __future__ import annotations

import asyncio
import concurrent.futures.thread  # noqa: F401 - by asyncio.to_thread, which would do so in the cage
import logging
import threading
from collections.abc import Coroutine
from contextlib import ExitStack, aclosing
from typing import Any

import msgspec

from puna.backends.base import ModelInfo, ModelLoadError
from puna.engine.request import Request, StepOutput
from puna.worker.calls import Asked, CallServer, ProtocolError, close_all
from puna.worker.engine.messages import (
    Cancel,
    Hold,
    Load,
    LoadAdapter,
    Outputs,
    Pause,
    SetVocabulary,
    Submit,
    Unload,
)
from puna.worker.llamacpp.client.http import ServerError
from puna.worker.llamacpp.client.replies import ServedModel
from puna.worker.llamacpp.hosted import HostedServer
from puna.worker.llamacpp.messages import Launch, ServerSettings
from puna.worker.llamacpp.model_file import ModelFile, file_for_server, read_model_file
from puna.worker.llamacpp.projector import media_marker, projector_file

log = logging.getLogger(__name__)


class _Meta(msgspec.Struct, frozen=True):
    n_vocab: int = 0
    n_embd: int = 0


class _Listed(msgspec.Struct, frozen=True):
    meta: _Meta


class _Models(msgspec.Struct, frozen=True):
    """Of GET /v1/models."""

    data: list[_Listed]


class _Running:
    """A request that is not finished."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.task: asyncio.Task[None]
        self.may_go_on = asyncio.Event()
        self.may_go_on.set()


class LlamaServer:
    """Serves one daemon until it closes the channel, or the server ends. One model, loaded once."""

    def __init__(
        self, settings: ServerSettings, num_threads: int, hosted: HostedServer, calls: CallServer
    ) -> None:
        self._settings = settings
        self._num_threads = num_threads
        self._hosted = hosted
        self._calls = calls
        self._model: ServedModel | None = None
        self._running: dict[str, _Running] = {}
        self._slots = asyncio.Semaphore(settings.num_slots)
        self._ended = asyncio.Event()
        self._status = 0
        self._background: set[asyncio.Task[None]] = set()

    async def run(self) -> int:
        """The process's status; the server ends with the process."""
        loop = asyncio.get_running_loop()
        threading.Thread(target=self._read, args=(loop,), name="read", daemon=True).start()
        await self._ended.wait()
        return self._status

    def _read(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            while (asked := self._calls.read()) is not None:
                loop.call_soon_threadsafe(self._handle, asked)
        except (OSError, ProtocolError) as error:
            log.error("connection lost: %s", error)
        finally:
            loop.call_soon_threadsafe(self._ended.set)

    def _handle(self, asked: Asked) -> None:
        call, message = asked.call, asked.message
        match message:
            case Submit(request):
                self._submit(request)
            case Cancel(request_id):
                if found := self._running.get(request_id):
                    found.task.cancel()
            case Pause(request_id, paused):
                if found := self._running.get(request_id):
                    (found.may_go_on.clear if paused else found.may_go_on.set)()
            case Hold():
                pass  # it never sleeps
            case Load():
                self._run(self._load(asked))
            case SetVocabulary():  # the text is the server's
                close_all(asked.descriptors)
                self._calls.answer(call, None)
            case LoadAdapter(name=name):
                close_all(asked.descriptors)
                text = f"{name}: adapters are not supported by the second engine (llama.cpp's server)"
                self._calls.fail(call, ModelLoadError(text))
            case Unload():
                self._calls.answer(call, None)
                self._ended.set()
            case _:
                close_all(asked.descriptors)
                kind = type(message).__name__
                self._calls.fail(call, ProtocolError(f"{kind} is no message for the second engine"))

    def _submit(self, request: Request) -> None:
        if (model := self._model) is None:
            output = StepOutput(request_id=request.id, finish_reason="error", error="no model is loaded")
            self._calls.tell(Outputs([output]))
            return
        if len(self._running) >= self._settings.num_slots + self._settings.max_queue:
            self._calls.tell(Outputs([StepOutput(request_id=request.id, finish_reason="busy")]))
            return
        running = self._running[request.id] = _Running(request)
        running.task = asyncio.create_task(self._serve(model, running))
        # A task that is cancelled before its first step runs none of its code.
        running.task.add_done_callback(lambda _: self._running.pop(request.id, None))

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def _load(self, asked: Asked) -> None:
        message: Load = asked.message
        try:
            info = await self._loaded(message, asked.descriptors)
        except ModelLoadError as error:
            self._calls.fail(asked.call, error)
        except Exception as error:  # a file must not end the worker, whatever it hits
            log.exception("loading %s", message.name)
            self._calls.fail(asked.call, ModelLoadError(f"{message.name}: {error!r}"))
        else:
            self._calls.answer(asked.call, info)
            self._run(self._end_with_server())
        finally:
            close_all(asked.descriptors)

    async def _loaded(self, message: Load, descriptors: list[int]) -> ModelInfo:
        settings, (model, empty) = self._settings, descriptors[:2]
        file = read_model_file(model, message.name)
        context_length = min(settings.context_length, file.context_length or settings.context_length)
        launch = Launch(
            settings,
            context_length if file.is_embedding else context_length * settings.num_slots,
            self._num_threads,
            file.is_embedding,
        )
        with ExitStack() as stack:
            files = [await asyncio.to_thread(file_for_server, model, empty, message.name)]
            if message.sees:
                files.append(stack.enter_context(projector_file(descriptors[-1], message.name)))
            client = await self._hosted.launch(launch, *files)
        marker = await media_marker(client, message.name) if message.sees else ""
        listed = await client.get("/v1/models", _Models)
        if not listed.data:
            raise ServerError("the server has no model")
        self._model = ServedModel(client, context_length, file.bos_id, marker)
        return self._describe(file, listed.data[0].meta, context_length)

    def _describe(self, file: ModelFile, meta: _Meta, context_length: int) -> ModelInfo:
        own_bytes, file_bytes = self._hosted.memory_bytes()
        return ModelInfo(
            architecture=file.architecture,
            vocab_size=meta.n_vocab,
            context_length=context_length,
            num_layers=file.num_layers,
            groups=(),
            kv_type=self._settings.kv_type,
            weight_bytes=file.weight_bytes,
            can_shift=False,
            hidden_size=meta.n_embd,
            pooling=file.pooling,
            # What lies on GPUs is not in memory, nor what no token has needed yet.
            idle_weight_bytes=max(file.weight_bytes - file_bytes, 0),
            scratch_bytes=own_bytes,
            kernels="llama.cpp",
            engine="llamacpp",
            most_context=file.context_length,
        )

    async def _end_with_server(self) -> None:
        await self._hosted.wait()
        log.error("llama.cpp's server has ended")
        self._status = 1
        self._ended.set()

    async def _serve(self, model: ServedModel, running: _Running) -> None:
        """Tells outputs until the request is finished, or cancelled."""
        async with self._slots, aclosing(model.outputs(running.request, running.may_go_on)) as outputs:
            async for output in outputs:
                self._calls.tell(Outputs([output]))
