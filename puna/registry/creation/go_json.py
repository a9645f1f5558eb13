"""JSON with the bytes that Ollama writes: layers of the same content are the same blob in stores of both."""

from __future__ import annotations

from typing import Any

import msgspec

from puna.registry.modelfile.parameters import written_float

_ESCAPES = {
    ord("<"): "\\u003c",
    ord(">"): "\\u003e",
    ord("&"): "\\u0026",
    0x2028: "\\u2028",
    0x2029: "\\u2029",
}


def go_json(value: Any) -> bytes:
    """Keys of dictionaries sorted, and a newline at the end."""
    text = msgspec.json.encode(_with_floats(value), order="deterministic").decode()
    return text.translate(_ESCAPES).encode() + b"\n"


def _with_floats(value: Any) -> Any:
    if isinstance(value, float):
        return msgspec.Raw(written_float(value).encode())
    if isinstance(value, dict):
        return {key: _with_floats(each) for key, each in value.items()}
    return [_with_floats(each) for each in value] if isinstance(value, list) else value
