"""POST /api/embed and /api/embeddings."""

from __future__ import annotations

from array import array
from functools import partial

import msgspec
from starlette.requests import Request

from puna.api.bodies.body import read_body
from puna.api.context import context_of
from puna.api.errors import ApiError
from puna.api.ollama.errors import ollama_error_body
from puna.api.pooled import embedding
from puna.api.pooled.embedding import EmbedRequest, as_json, encoded
from puna.api.pooled.prompts import Vector
from puna.api.replying.streaming import WholeResponse
from puna.api.requests import ModelRequest


class EmbedBody(msgspec.Struct, kw_only=True):
    """The reply of /api/embed; durations in nanoseconds. Without counts where only a model was loaded."""

    model: str
    embeddings: list[Vector]
    total_duration: int | msgspec.UnsetType = msgspec.UNSET
    load_duration: int | msgspec.UnsetType = msgspec.UNSET
    prompt_eval_count: int | msgspec.UnsetType = msgspec.UNSET


class OneEmbeddingRequest(ModelRequest, kw_only=True):
    """The body of /api/embeddings."""

    prompt: str = ""


class OneEmbeddingBody(msgspec.Struct):
    """The reply of /api/embeddings; empty where only a model was loaded."""

    embedding: Vector


async def embed(request: Request) -> WholeResponse:
    """The embeddings of texts, each of length 1."""
    body, context = await read_body(request, EmbedRequest), context_of(request)

    async def reply() -> bytes:
        found = await embedding.embed(context, body, request.state.share)
        whole = EmbedBody(model=body.model, embeddings=found.embeddings)
        if found.embeddings:
            whole.total_duration, whole.load_duration = found.total_ns, found.load_ns
            whole.prompt_eval_count = found.num_tokens
        return await encoded(partial(as_json, whole), found)

    return WholeResponse(reply(), ollama_error_body)


async def embeddings(request: Request) -> WholeResponse:
    """The embedding of one text, of whatever length the model gives it."""
    body, context = await read_body(request, OneEmbeddingRequest), context_of(request)
    if not body.model:
        raise ApiError(400, "model is required")
    fields = {name: getattr(body, name) for name in ModelRequest.__struct_fields__}
    wanted = EmbedRequest(**fields, input=body.prompt)

    async def reply() -> bytes:
        found = await embedding.embed(context, wanted, request.state.share, normalized=False)
        one = OneEmbeddingBody(next(iter(found.embeddings), array("f")))
        return await encoded(partial(as_json, one), found)

    return WholeResponse(reply(), ollama_error_body)
