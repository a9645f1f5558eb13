"""POST /api/tokenize and /api/detokenize: texts and tokens of a model, which need not be loaded."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from puna.api.bodies.body import read_body
from puna.api.context import context_of
from puna.api.errors import ApiError
from puna.api.names import find_model
from puna.api.replying.replies import json_response
from puna.daemon.text.model import TextModel
from puna.daemon.text.opened import opened_text
from puna.daemon.text.pool import TextPool

_MOST_TOKENS = 1 << 20


class TokenizeRequest(msgspec.Struct):
    """Fields beside the model are those of llama.cpp's server."""

    model: str = ""
    content: str = ""
    add_special: bool = False
    """With the tokens that the model wants before and behind a text."""
    parse_special: bool = True
    """Control tokens that are written out in the text are such tokens."""


class DetokenizeRequest(msgspec.Struct):
    model: str = ""
    tokens: Annotated[list[int], msgspec.Meta(max_length=_MOST_TOKENS)] = []


class TokenizeReply(msgspec.Struct):
    model: str
    tokens: list[int]


class DetokenizeReply(msgspec.Struct):
    model: str
    content: str


async def tokenize(request: Request) -> Response:
    """From a text to tokens."""
    body = await read_body(request, TokenizeRequest)
    async with _text(request, body.model) as (pool, text):
        tokens = await pool.tokenize(
            text, body.content, add_special=body.add_special, parse_special=body.parse_special
        )
    return json_response(TokenizeReply(body.model, tokens))


async def detokenize(request: Request) -> Response:
    """From tokens to the text that they stand for, control tokens included."""
    body = await read_body(request, DetokenizeRequest)
    async with _text(request, body.model) as (pool, text):
        for token in (min(body.tokens, default=0), max(body.tokens, default=0)):
            if not 0 <= token < text.side.vocab_size:
                raise ApiError(400, f"the model does not have token {token}")
        content = await pool.detokenize(text, body.tokens)
    return json_response(DetokenizeReply(body.model, content))


@asynccontextmanager
async def _text(request: Request, name: str) -> AsyncIterator[tuple[TextPool, TextModel]]:
    """The model's vocabulary, and who knows it."""
    if not name:
        raise ApiError(400, "model is required")
    runtime = context_of(request).runtime
    model = await find_model(runtime.store, name)
    async with opened_text(runtime.opener, runtime.text, model) as text:
        yield runtime.text, text
