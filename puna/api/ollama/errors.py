"""Errors in Ollama's shape."""

from __future__ import annotations

import msgspec
from starlette.responses import Response

from puna.api.errors import ApiError
from puna.api.replying.replies import error_reply


class OllamaError(msgspec.Struct):
    """What a client is told."""

    error: str


def ollama_error_body(error: ApiError) -> bytes:
    """One JSON object; in a stream, a line of its own."""
    return msgspec.json.encode(OllamaError(error.text))


def ollama_error_reply(error: ApiError) -> Response:
    """To a request of this face."""
    return error_reply(ollama_error_body(error), error)
