"""How hard a model is to think."""

from __future__ import annotations

import msgspec

from puna.api.errors import ApiError

_EFFORTS: dict[str, bool | str] = {
    "none": False,
    "minimal": "low",
    "low": "low",
    "medium": "medium",
    "high": "high",
    "max": "max",
    "xhigh": "max",
    "ultra": "max",
}


class Reasoning(msgspec.Struct):
    """`reasoning` of a request."""

    effort: str | None = None
    summary: str | None = None
    """Thoughts are given as they are, whatever it says."""


def think_of(effort: str | None) -> bool | str | None:
    """As Ollama's `think`; None: up to the model. ApiError (400) for an effort that there is not."""
    if not effort:
        return None
    if effort not in _EFFORTS:
        choices = ", ".join(f'"{name}"' for name in _EFFORTS)
        raise ApiError(400, f'invalid reasoning value: "{effort[:40]}" (must be {choices})')
    return _EFFORTS[effort]
