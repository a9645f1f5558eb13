"""Errors in Ollama's shape."""

from __future__ import annotations

import msgspec

from puna.api.errors import ApiError


def ollama_error_body(error: ApiError) -> bytes:
    """One JSON object; in a stream, a line of its own."""
    return msgspec.json.encode({"error": error.text})
