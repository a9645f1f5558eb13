"""Errors in OpenAI's shape."""

from __future__ import annotations

import msgspec
from starlette.responses import Response

from puna.api.errors import ApiError
from puna.api.replying.replies import error_reply

_TYPES = {400: "invalid_request_error", 404: "not_found_error"}


class ErrorDetail(msgspec.Struct):
    """Where an error is in the request is not said."""

    message: str
    type: str
    param: str | None = None
    code: str | None = None


class OpenAIError(msgspec.Struct):
    """What a client is told."""

    error: ErrorDetail


def openai_error_body(error: ApiError) -> bytes:
    """One JSON object."""
    return msgspec.json.encode(OpenAIError(ErrorDetail(error.text, _TYPES.get(error.status, "api_error"))))


def openai_error_reply(error: ApiError) -> Response:
    """To a request of this face."""
    return error_reply(openai_error_body(error), error)
