"""The jobs that text workers do for the daemon."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager

from puna.backends.base import ModelSource
from puna.chat.embedding_inputs import InputsRequest
from puna.chat.model_record import ModelRecord
from puna.chat.prompt import Prompt, PromptRequest, check_tokens
from puna.chat.ranking_inputs import PairsRequest
from puna.chat.templates.model_templates import ModelTemplates
from puna.daemon.busy import ServerBusy
from puna.daemon.text.model import TextModel, UnusedModels, identity_of
from puna.daemon.text.workers import Job, TextWorkers
from puna.daemon.worker.restarting_child import ProcessStatus
from puna.gguf.errors import GgufError
from puna.worker.text import memory_file
from puna.worker.text.limits import Limits
from puna.worker.text.messages import (
    BuildPrompts,
    CheckTemplate,
    Describe,
    Detokenize,
    EncodeInputs,
    EncodePairs,
    Inspect,
    OpenModel,
    Tokenize,
)
from puna.worker.text.processes import ZygoteProcess

_LONG_CHARS = 1 << 16
"""A prompt of that length takes tens of milliseconds."""
_LARGE_BYTES = 1 << 20
_UNUSED_BYTES = 64 << 20
"""Of vocabularies of models that are not used now. One of 262,144 tokens takes 12 MiB."""
_MAX_LARGE = 4
"""Descriptions larger than that at the same time: each takes memory until its client has it all."""


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
        self._num_large = 0
        self._unused = UnusedModels(_UNUSED_BYTES)

    @property
    def processes(self) -> list[ProcessStatus]:
        return self._workers.processes

    def start(self) -> None:
        """Begins to start the text process, so that the first request finds it ready."""
        self._workers.start()

    async def close(self) -> None:
        """Ends the processes; calls that wait for an answer raise WorkerDied."""
        await self._workers.close()
        self._unused.close()

    async def inspect(
        self,
        source: ModelSource,
        templates: ModelTemplates = ModelTemplates(),  # noqa: B008
    ) -> ModelRecord:
        """Also of a file that cannot be used: the record says why."""
        message = Inspect(source.name, templates)
        try:
            return await self._workers.run(Job(message, source.header, key=source.name))
        except GgufError as error:
            return ModelRecord(error=str(error))

    async def check_template(self, source: ModelSource, templates: ModelTemplates) -> None:
        """Raises TemplateError if the template of choice cannot be used, GgufError."""
        message = CheckTemplate(source.name, templates)
        await self._workers.run(Job(message, source.header, key=source.name))

    @asynccontextmanager
    async def describe(
        self,
        source: ModelSource,
        *,
        verbose: bool,
        with_template: bool,
        basename: str = "",
        is_projector: bool = False,
    ) -> AsyncIterator[int]:
        """A file in memory with members of a JSON object: see puna.worker.text.description.

        verbose: with all arrays. with_template: with the file's. basename: in place of the
        file's, if it is not empty. is_projector: of a model. Raises GgufError, ServerBusy.
        """
        descriptor = memory_file.create("description")
        try:
            message = Describe(source.name, verbose, with_template, basename, is_projector)
            descriptors = [*source.header, descriptor]
            await self._workers.run(Job(message, descriptors, key=source.name, is_long=True))
            memory_file.seal(descriptor)
            with self._counted(os.fstat(descriptor).st_size):
                yield descriptor
        finally:
            os.close(descriptor)

    @contextmanager
    def _counted(self, num_bytes: int) -> Iterator[None]:
        """A description. Raises ServerBusy where too many clients do not read theirs."""
        is_large = num_bytes > _LARGE_BYTES
        if is_large and self._num_large >= _MAX_LARGE:
            raise ServerBusy
        self._num_large += is_large
        try:
            yield
        finally:
            self._num_large -= is_large

    async def open_model(self, source: ModelSource) -> TextModel:
        """It is the caller's, who closes it with close_model(). Raises GgufError, TokenizerError."""
        files = identity_of(source.header)
        if (unused := self._unused.take(files)) is not None:
            return unused
        with ExitStack() as opened:
            made = [memory_file.create(name) for name in ("vocabulary", "token table")]
            for file in made:
                opened.callback(os.close, file)
            job = Job(OpenModel(source.name), [*source.header, *made], key=source.name)
            side = await self._workers.run(job)
            for file in made:
                memory_file.seal(file)
            opened.pop_all()
            return TextModel(side, made[0], made[1], files)

    async def build_prompts(self, model: TextModel, request: PromptRequest) -> list[Prompt]:
        """Raises PromptError, TemplateError."""
        check_tokens(request, model.side.vocab_size)
        message = BuildPrompts(model.number, request)
        is_long = request.num_chars > _LONG_CHARS
        return await self._workers.run(Job(message, (), key=model.number, model=model, is_long=is_long))

    async def encode_inputs(self, model: TextModel, request: InputsRequest) -> list[list[int]]:
        """Raises PromptError."""
        message = EncodeInputs(model.number, request)
        is_long = request.num_chars > _LONG_CHARS
        return await self._workers.run(Job(message, (), key=model.number, model=model, is_long=is_long))

    async def encode_pairs(self, model: TextModel, request: PairsRequest) -> list[list[int]]:
        """Raises PromptError."""
        message = EncodePairs(model.number, request)
        is_long = request.num_chars > _LONG_CHARS
        return await self._workers.run(Job(message, (), key=model.number, model=model, is_long=is_long))

    async def tokenize(
        self, model: TextModel, text: str, *, add_special: bool, parse_special: bool
    ) -> list[int]:
        """See Tokenizer.encode()."""
        message = Tokenize(model.number, text, add_special, parse_special)
        is_long = len(text) > _LONG_CHARS
        return await self._workers.run(Job(message, (), key=model.number, model=model, is_long=is_long))

    async def detokenize(self, model: TextModel, tokens: list[int]) -> str:
        """See Tokenizer.decode(). Raises TokenizerError."""
        message = Detokenize(model.number, tokens)
        is_long = len(tokens) > _LONG_CHARS
        return await self._workers.run(Job(message, (), key=model.number, model=model, is_long=is_long))

    def close_model(self, model: TextModel) -> None:
        """Its prompts cannot be built any more."""
        self._workers.detach(model)
        self._unused.add(model)
