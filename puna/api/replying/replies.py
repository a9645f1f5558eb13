"""JSON replies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.responses import Response

from puna.api.errors import ApiError

JSON_MEDIA_TYPE = "application/json; charset=utf-8"


def error_reply(body: bytes, error: ApiError, headers: Mapping[str, str] = {}) -> Response:
    """body: the error, as the face has it."""
    retry = {} if error.retry_after_s is None else {"Retry-After": str(error.retry_after_s)}
    return Response(body, error.status, {**headers, **retry}, JSON_MEDIA_TYPE)


def json_response(content: Any, status: int = 200) -> Response:
    """Anything msgspec can encode, compact."""
    return Response(msgspec.json.encode(content), status, media_type=JSON_MEDIA_TYPE)
