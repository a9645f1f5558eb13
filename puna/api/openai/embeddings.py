"""POST /v1/embeddings."""

from __future__ import annotations

from base64 import b64encode
from functools import partial
from typing import Annotated, Any, Literal

import msgspec
from starlette.requests import Request

from puna.api.bodies.body import read_body
from puna.api.context import context_of
from puna.api.errors import ApiError
from puna.api.openai.errors import openai_error_body
from puna.api.pooled.embedding import EmbedReply, EmbedRequest, as_json, embed, encoded
from puna.api.replying.streaming import WholeResponse
from puna.api.requests import Extensions, extensions_of

_FORMATS = ("float", "base64")
_EMBEDDING = {"anyOf": [{"type": "array", "items": {"type": "number"}}, {"type": "string"}]}


class EmbeddingsRequest(Extensions, kw_only=True):
    """The body."""

    model: str = ""
    input: Any = None
    dimensions: int | None = None
    encoding_format: str = "float"

    def check(self) -> None:
        """ApiError (400)."""
        texts = [self.input] if isinstance(self.input, str) else self.input
        if texts is None or texts == []:
            raise ApiError(400, "invalid input")
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise ApiError(400, "invalid input type: it must be a text or a list of texts, no tokens")
        if self.dimensions is not None and self.dimensions < 1:
            raise ApiError(400, "dimensions must be at least 1")
        if self.encoding_format.lower() not in _FORMATS:
            raise ApiError(
                400,
                f"Invalid value for 'encoding_format' = {self.encoding_format[:40]}. "
                f"Supported values: {list(_FORMATS)}.",
            )


class EmbeddingObject(msgspec.Struct, kw_only=True):
    """Values, or their bytes as base64: float32, the lowest byte first."""

    object: Literal["embedding"] = "embedding"
    embedding: Annotated[Any, msgspec.Meta(extra_json_schema=_EMBEDDING)]
    index: int


class EmbeddingsUsage(msgspec.Struct):
    """Tokens of all inputs."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingList(msgspec.Struct, kw_only=True):
    """The reply."""

    object: Literal["list"] = "list"
    data: list[EmbeddingObject]
    model: str
    usage: EmbeddingsUsage


async def embeddings(request: Request) -> WholeResponse:
    """Of texts, each of length 1."""
    body, context = await read_body(request, EmbeddingsRequest, empty="EOF"), context_of(request)
    body.check()
    wanted = EmbedRequest(
        model=body.model,
        input=[body.input] if isinstance(body.input, str) else body.input,
        dimensions=body.dimensions or 0,
        **extensions_of(body),
    )

    async def reply() -> bytes:
        found = await embed(context, wanted, request.state.share)
        return await encoded(partial(_encoded, body, found), found)

    return WholeResponse(reply(), openai_error_body)


def _encoded(request: EmbeddingsRequest, reply: EmbedReply) -> bytes:
    as_text = request.encoding_format.lower() == "base64"
    data = [
        EmbeddingObject(embedding=b64encode(vector).decode() if as_text else vector, index=index)
        for index, vector in enumerate(reply.embeddings)
    ]
    usage = EmbeddingsUsage(reply.num_tokens, reply.num_tokens)
    return as_json(EmbeddingList(data=data, model=request.model, usage=usage))
