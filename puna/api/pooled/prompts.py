"""Prompts of one request that become vectors, and not replies."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar

from puna.api.options import Options
from puna.api.replying.generation import raise_failure
from puna.api.requests import ModelRequest
from puna.daemon.runtime import ResidentModel, Runtime
from puna.engine.request import GenerationError, Request
from puna.gguf.pooling import Pooling
from puna.registry.first_error import first_of

_MOST_AT_ONCE = 256
"""Prompts of a request that the engine has at the same time: some steps' worth of short ones."""
_PART_CHARS = 1 << 18
"""Of texts that become tokens together, but for one that is longer."""

if TYPE_CHECKING:
    Vector: TypeAlias = array[float]
else:
    Vector = array  # which only the types know how to parametrize

T = TypeVar("T")


class PooledPrompts(Generic[T]):
    """finish: what is made of each vector."""

    def __init__(
        self,
        runtime: Runtime,
        request: ModelRequest,
        resident: ResidentModel,
        options: Options,
        finish: Callable[[Vector], T],
    ) -> None:
        self.num_tokens = 0
        """Of the prompts that are done."""
        self._runtime = runtime
        self._request = request
        self._resident = resident
        self._options = options
        self._finish = finish
        self._room = asyncio.Semaphore(max(min(_MOST_AT_ONCE, runtime.settings.max_queue), 1))

    async def compute(self, parts: AsyncGenerator[list[list[int]], None], pooling: Pooling) -> list[T]:
        """Of prompts, in their order. The engine works while later ones still become tokens. Where one fails,
        all others end.

        Raises what `parts` and `finish` raise, GenerationError, ServerBusy, WorkerDied.
        """
        tasks: list[asyncio.Task[T]] = []
        try:
            async with asyncio.TaskGroup() as group, aclosing(parts):
                async for part in parts:
                    for tokens in part:
                        await self._room.acquire()
                        tasks.append(group.create_task(self._computed(tokens, pooling)))
        except BaseExceptionGroup as errors:
            raise first_of(errors) from None
        return [task.result() for task in tasks]

    async def _computed(self, tokens: list[int], pooling: Pooling) -> T:
        """Gives its place back."""
        try:
            async with self._runtime.stream(self._engine_request(tokens, pooling)) as outputs:
                async for output in outputs:
                    raise_failure(output)
                    if output.finish_reason is not None:
                        self.num_tokens += len(tokens)
                        return self._finish(array("f", output.embedding))
            raise GenerationError("the request has no end")
        finally:
            self._room.release()

    def _engine_request(self, tokens: list[int], pooling: Pooling) -> Request:
        request, options = self._request, self._options
        return Request(
            id=self._runtime.new_request_id(),
            model_id=self._resident.model.weights_id,
            adapter=self._resident.adapter,
            prompt=tokens,
            pooling=pooling,
            context_length=self._resident.context_length,
            num_threads=options.num_thread if options.num_thread > 0 else None,
            priority=request.priority,
            cache_prompt=request.cache_prompt,
            cache_salt=request.cache_salt,
            cache_to_disk=False,  # it would mostly be written for nothing
        )


def in_parts(texts: Sequence[str], each: int = 0) -> Iterator[list[str]]:
    """Texts that are made into tokens together. each: characters that come with every one of them."""
    part: list[str] = []
    num_chars = 0
    for text in texts:
        if part and num_chars + len(text) + each > _PART_CHARS:
            yield part
            part, num_chars = [], 0
        part.append(text)
        num_chars += len(text) + each
    if part:
        yield part
