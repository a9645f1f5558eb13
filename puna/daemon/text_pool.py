"""What the daemon asks its text workers."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager

from puna.backends.base import ModelSource
from puna.chat.model_record import ModelRecord
from puna.chat.prompt import Prompt, PromptRequest, check_tokens
from puna.daemon.supervisor import ProcessStatus
from puna.daemon.text_model import TextModel
from puna.daemon.text_workers import Job, TextWorkers
from puna.gguf.errors import GgufError
from puna.worker.text import memory_file
from puna.worker.text.limits import Limits
from puna.worker.text.messages import BuildPrompts, CheckTemplate, Describe, Inspect, OpenModel
from puna.worker.text.processes import ZygoteProcess

_LONG_CHARS = 1 << 16
"""A prompt of that length takes tens of milliseconds."""
_MAX_DESCRIPTIONS = 4
"""At the same time: each takes memory until the client has it all."""


class TextPool:
    """All methods raise WorkerDied when a text worker dies of what it is asked, or the daemon shuts down.

    limits: of each worker. spawn: starts the zygote; by default a real one.
    """

    def __init__(
        self,
        limits: Limits = Limits(),  # noqa: B008
        spawn: Callable[[], Awaitable[ZygoteProcess]] = ZygoteProcess.start,
    ) -> None:
        self._workers = TextWorkers(spawn, limits)
        self._descriptions = asyncio.Semaphore(_MAX_DESCRIPTIONS)

    @property
    def processes(self) -> list[ProcessStatus]:
        return self._workers.processes

    def start(self) -> None:
        """Begins to start the text process, so that the first request finds it ready."""
        self._workers.start()

    async def close(self) -> None:
        """Ends the processes; whoever waits for an answer gets WorkerDied."""
        await self._workers.close()

    async def inspect(self, source: ModelSource) -> ModelRecord:
        """Also of a file that cannot be used: the record says why."""
        try:
            return await self._workers.run(Job(Inspect(source.name), source.descriptors, key=source.name))
        except GgufError as error:
            return ModelRecord(error=str(error))

    async def check_template(self, source: ModelSource) -> None:
        """Raises TemplateError if the file has a template that cannot be used, GgufError."""
        await self._workers.run(Job(CheckTemplate(source.name), source.descriptors, key=source.name))

    @asynccontextmanager
    async def describe(self, source: ModelSource, *, verbose: bool) -> AsyncIterator[int]:
        """A file in memory with members of a JSON object: see puna.worker.text.description.

        verbose: with all arrays. Raises GgufError.
        """
        async with self._descriptions:
            descriptor = memory_file.create("description")
            try:
                message = Describe(source.name, verbose)
                descriptors = [*source.descriptors, descriptor]
                await self._workers.run(Job(message, descriptors, key=source.name, is_long=True))
                memory_file.seal(descriptor)
                yield descriptor
            finally:
                os.close(descriptor)

    async def open_model(self, source: ModelSource) -> TextModel:
        """It is the caller's, who closes it with close_model(). Raises GgufError, TokenizerError."""
        with ExitStack() as opened:
            files = [memory_file.create(name) for name in ("vocabulary", "token table")]
            for file in files:
                opened.callback(os.close, file)
            job = Job(OpenModel(source.name), [*source.descriptors, *files], key=source.name)
            side = await self._workers.run(job)
            for file in files:
                memory_file.seal(file)
            opened.pop_all()
            return TextModel(side, files[0], files[1])

    async def build_prompts(self, model: TextModel, request: PromptRequest) -> list[Prompt]:
        """Raises PromptError, TemplateError."""
        check_tokens(request, model.side.vocab_size)
        message = BuildPrompts(model.number, request)
        is_long = request.num_chars > _LONG_CHARS
        return await self._workers.run(Job(message, (), key=model.number, model=model, is_long=is_long))

    def close_model(self, model: TextModel) -> None:
        """Its prompts cannot be built any more."""
        model.close()
        self._workers.detach(model)
