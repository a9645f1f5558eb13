"""Errors in Anthropic's shape."""

from __future__ import annotations

import msgspec
from starlette.responses import Response

from puna.api.anthropic.objects import new_id
from puna.api.errors import ApiError
from puna.api.replying.replies import error_reply

_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    529: "overloaded_error",
}


class ErrorDetail(msgspec.Struct):
    type: str
    message: str


class AnthropicError(msgspec.Struct, tag_field="type", tag="error"):
    """What a client is told."""

    error: ErrorDetail
    request_id: str


def anthropic_error_body(error: ApiError, request_id: str) -> bytes:
    """One JSON object."""
    detail = ErrorDetail(_TYPES.get(error.status, "api_error"), error.text)
    return msgspec.json.encode(AnthropicError(detail, request_id))


def anthropic_error_reply(error: ApiError) -> Response:
    """To a request that has no id yet."""
    request_id = new_id("req")
    return error_reply(anthropic_error_body(error, request_id), error, id_header(request_id))


def id_header(request_id: str) -> dict[str, str]:
    """What clients log of every reply."""
    return {"request-id": request_id}
