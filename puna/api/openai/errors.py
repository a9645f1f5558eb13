"""Errors in OpenAI's shape."""

from __future__ import annotations

import msgspec
from starlette.responses import Response

from puna.api.errors import ApiError
from puna.api.replies import error_reply

_TYPES = {400: "invalid_request_error", 404: "not_found_error"}


def openai_error_body(error: ApiError) -> bytes:
    """One JSON object."""
    kind = _TYPES.get(error.status, "api_error")
    return msgspec.json.encode({"error": {"message": error.text, "type": kind, "param": None, "code": None}})


def openai_error_reply(error: ApiError) -> Response:
    """To a request of this face."""
    return error_reply(openai_error_body(error), error)
