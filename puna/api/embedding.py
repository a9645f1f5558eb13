"""The way of texts to their embeddings, for every protocol."""

from __future__ import annotations

import asyncio
import math
import time
from array import array
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from puna.api.bodies.body_budget import Share
from puna.api.checks import check_extensions
from puna.api.context import ApiContext
from puna.api.errors import ApiError
from puna.api.names import find_model
from puna.api.options import Options, parse_options
from puna.api.replying.generation import Clock, raise_failure
from puna.api.requests import ModelRequest
from puna.chat.embedding_inputs import InputsRequest
from puna.daemon.runtime import ResidentModel, Runtime
from puna.engine.request import GenerationError, Request
from puna.gguf.pooling import Pooling

_MOST_VALUES = 1 << 23
"""Of all embeddings of a reply."""
_VALUE_BYTES = 24
"""Of a value on its way to the client: in memory, and as JSON."""
_MOST_AT_ONCE = 256
"""Inputs of a request that the engine has at the same time: some steps' worth of short ones."""
_PART_CHARS = 1 << 18
"""Of texts that become tokens together, but for one that is longer."""


if TYPE_CHECKING:
    Vector: TypeAlias = array[float]
else:
    Vector = array  # which only the types know how to parametrize


class EmbedRequest(ModelRequest, kw_only=True):
    """Texts whose embeddings are wanted."""

    input: Any = None
    """A text, a list of them, or nothing."""
    truncate: bool = True
    """Whether the end of a text that does not fit the context is left out."""
    dimensions: int = 0
    """Of each embedding, its first so many values; 0, or more than it has: all."""

    def texts(self) -> list[str]:
        """ApiError (400) for anything but texts."""
        given = [self.input] if isinstance(self.input, str) and self.input else self.input or []
        if not isinstance(given, list) or not all(isinstance(text, str) for text in given):
            raise ApiError(400, "invalid input type")
        return given


class EmbedReply(msgspec.Struct, kw_only=True):
    """Embeddings in the order of the texts."""

    embeddings: list[Vector]
    """float32, of unit length unless asked for otherwise."""
    num_tokens: int
    """Of all texts."""
    total_ns: int
    load_ns: int
    """Until the model was there."""


async def embed(
    context: ApiContext, request: EmbedRequest, share: Share, *, normalized: bool = True
) -> EmbedReply:
    """Cancelling it cancels what is computed.

    share: of the client's request, which holds the reply's bytes as well.
    Raises what puna.api.errors has a status for.
    """
    clock = Clock(arrival_ns=time.monotonic_ns())
    texts = request.texts()
    keep_alive_s = request.keep_alive_s()
    check_extensions(request, len(texts))
    if request.session is not None:
        raise ApiError(400, "embeddings belong to no session")
    model = await find_model(context.runtime.store, request.model, missing=_missing(request.model))
    options = parse_options(model.params, request.options)
    async with context.runtime.resident(
        str(model.name), num_ctx=options.num_ctx, keep_alive=keep_alive_s
    ) as resident:
        clock.loaded_ns = time.monotonic_ns()
        _check_size(len(texts), resident.info.hidden_size, share)
        embedder = _Embedder(context.runtime, request, resident, options, normalized=normalized)
        vectors = await embedder.embed_all(texts)
    return EmbedReply(
        embeddings=vectors,
        num_tokens=embedder.num_tokens,
        total_ns=time.monotonic_ns() - clock.arrival_ns,
        load_ns=clock.loaded_ns - clock.arrival_ns,
    )


def _check_size(num_texts: int, hidden_size: int, share: Share) -> None:
    """ApiError (400, 503)."""
    if (num_values := num_texts * hidden_size) > _MOST_VALUES:
        most = _MOST_VALUES // hidden_size
        raise ApiError(400, f"a request to this model may have {most} inputs at most")
    share.grow(num_values * _VALUE_BYTES)


def _finished(vector: Vector, dimensions: int, *, normalized: bool) -> Vector:
    """ApiError (400) where it holds no numbers."""
    if not all(map(math.isfinite, vector)):
        raise ApiError(400, "embedding contains NaN or Inf values")
    vector = vector[:dimensions] if dimensions > 0 else vector
    length = math.hypot(*vector)
    return array("f", [value / length for value in vector]) if normalized and length else vector


async def encoded(reply: object) -> bytes:
    """A reply with arrays, as JSON. Other requests go on meanwhile."""
    return await asyncio.to_thread(msgspec.json.encode, reply, enc_hook=array.tolist)


def _missing(model: str) -> ApiError:
    if not model:
        return ApiError(404, "model '' not found")
    return ApiError(404, f'model "{model}" not found, try pulling it first')


class _Embedder:
    """Of one request. Its methods raise PromptError, GenerationError, ServerBusy, WorkerDied, ApiError."""

    def __init__(
        self,
        runtime: Runtime,
        request: EmbedRequest,
        resident: ResidentModel,
        options: Options,
        *,
        normalized: bool,
    ) -> None:
        self.num_tokens = 0
        """Of what was embedded."""
        self._runtime = runtime
        self._request = request
        self._resident = resident
        self._options = options
        self._normalized = normalized
        self._has_failed = False
        self._room = asyncio.Semaphore(max(min(_MOST_AT_ONCE, runtime.settings.max_queue), 1))

    async def embed_all(self, texts: Sequence[str]) -> list[Vector]:
        """In their order. The engine works while later ones still become tokens."""
        tasks: list[asyncio.Task[Vector]] = []
        pooling = self._pooling() if texts else "last"
        try:
            for part in _parts(texts):
                for tokens in await self._encoded(part):
                    await self._room.acquire()
                    tasks.append(asyncio.create_task(self._embedded(tokens, pooling)))
                if self._has_failed:
                    break
            return await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _pooling(self) -> Pooling:
        if self._resident.info.pooling == "rank":
            raise ApiError(400, f'"{self._request.model}" does not support embeddings')
        return self._resident.info.pooling

    async def _encoded(self, texts: list[str]) -> list[list[int]]:
        inputs = InputsRequest(
            texts=texts, context_length=self._resident.context_length, truncate=self._request.truncate
        )
        return await self._runtime.text.encode_inputs(self._resident.text, inputs)

    async def _embedded(self, tokens: list[int], pooling: Pooling) -> Vector:
        """Gives its place back."""
        try:
            async with self._runtime.stream(self._engine_request(tokens, pooling)) as outputs:
                async for output in outputs:
                    raise_failure(output)
                    if output.finish_reason is not None:
                        self.num_tokens += len(tokens)
                        vector = array("f", output.embedding)
                        return _finished(vector, self._request.dimensions, normalized=self._normalized)
            raise GenerationError("the request has no end")
        except BaseException:
            self._has_failed = True
            raise
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


def _parts(texts: Sequence[str]) -> Iterator[list[str]]:
    part: list[str] = []
    num_chars = 0
    for text in texts:
        if part and num_chars + len(text) > _PART_CHARS:
            yield part
            part, num_chars = [], 0
        part.append(text)
        num_chars += len(text)
    if part:
        yield part
