"""The way of texts to their embeddings, for every protocol."""

from __future__ import annotations

import asyncio
import math
import time
from array import array
from collections.abc import AsyncGenerator, Callable, Sequence
from functools import partial
from typing import Any

import msgspec

from puna._native import json_floats
from puna.api.bodies.body_budget import Share
from puna.api.checks import check_extensions
from puna.api.context import ApiContext
from puna.api.errors import ApiError
from puna.api.names import find_model, missing_model
from puna.api.options import parse_options
from puna.api.pooled.prompts import PooledPrompts, Vector, in_parts
from puna.api.replying.generation import Clock
from puna.api.requests import ModelRequest
from puna.chat.embedding_inputs import InputsRequest
from puna.daemon.runtime import ResidentModel
from puna.daemon.text.pool import TextPool
from puna.gguf.pooling import Pooling

_MOST_VALUES = 1 << 23
"""Of all embeddings of a reply."""
_FEW_VALUES = 1 << 12
"""Of a reply that is encoded within a fraction of a millisecond."""
_VALUE_BYTES = 24
"""Of a value on its way to the client: in memory, and as JSON."""


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
    model = await find_model(context.runtime.store, request.model, missing=missing_model(request.model))
    options = parse_options(model.params, request.options)
    async with context.runtime.resident(model, num_ctx=options.num_ctx, keep_alive=keep_alive_s) as resident:
        clock.loaded_ns = time.monotonic_ns()
        _check_size(len(texts), resident.info.hidden_size, share)
        finish = partial(_finished, dimensions=request.dimensions, normalized=normalized)
        prompts = PooledPrompts(context.runtime, request, resident, options, finish)
        encoded_parts = _encoded_parts(context.runtime.text, request, resident, texts)
        vectors = await prompts.compute(encoded_parts, _pooling(request, resident)) if texts else []
    return EmbedReply(
        embeddings=vectors,
        num_tokens=prompts.num_tokens,
        total_ns=time.monotonic_ns() - clock.arrival_ns,
        load_ns=clock.loaded_ns - clock.arrival_ns,
    )


def _pooling(request: EmbedRequest, resident: ResidentModel) -> Pooling:
    if resident.info.pooling == "rank" or resident.text.side.is_stand_in:
        raise ApiError(400, f'"{request.model}" does not support embeddings')
    return resident.info.pooling


async def _encoded_parts(
    pool: TextPool, request: EmbedRequest, resident: ResidentModel, texts: Sequence[str]
) -> AsyncGenerator[list[list[int]], None]:
    """Raises PromptError, WorkerDied."""
    for part in in_parts(texts):
        inputs = InputsRequest(texts=part, context_length=resident.context_length, truncate=request.truncate)
        yield await pool.encode_inputs(resident.text, inputs)


def _check_size(num_texts: int, hidden_size: int, share: Share) -> None:
    """ApiError (400, 503)."""
    if (num_values := num_texts * hidden_size) > _MOST_VALUES:
        most = _MOST_VALUES // hidden_size
        raise ApiError(400, f"a request to this model may have {most} inputs at most")
    share.grow(num_values * _VALUE_BYTES)


def _finished(vector: Vector, dimensions: int, *, normalized: bool) -> Vector:
    """ApiError (400) where it holds no numbers."""
    length = math.hypot(*vector)
    if not math.isfinite(length):  # of finite float32 it is
        raise ApiError(400, "embedding contains NaN or Inf values")
    if 0 < dimensions < len(vector):
        vector = vector[:dimensions]
        length = math.hypot(*vector)
    return array("f", [value / length for value in vector]) if normalized and length else vector


async def encoded(encode: Callable[[], bytes], found: EmbedReply) -> bytes:
    """The reply that `encode` makes of what was found. Others go on meanwhile, unless that takes no longer
    than to have another thread do it.
    """
    num_values = sum(map(len, found.embeddings))
    return encode() if num_values <= _FEW_VALUES else await asyncio.to_thread(encode)


def as_json(reply: object) -> bytes:
    """Of a reply with arrays of float32."""
    return msgspec.json.encode(reply, enc_hook=lambda values: msgspec.Raw(json_floats(values)))
