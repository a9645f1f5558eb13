"""Errors in OpenAI's shape."""

from __future__ import annotations

import msgspec

from puna.api.errors import ApiError

_TYPES = {400: "invalid_request_error", 404: "not_found_error"}


def openai_error_body(error: ApiError) -> bytes:
    """One JSON object."""
    kind = _TYPES.get(error.status, "api_error")
    return msgspec.json.encode({"error": {"message": error.text, "type": kind, "param": None, "code": None}})
