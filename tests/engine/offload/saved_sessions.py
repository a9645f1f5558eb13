"""Sessions are saved and loaded at once, and errors raised."""

from __future__ import annotations

from puna.engine.offload.sessions import Sessions


def save(sessions: Sessions, model_id: str, name: str) -> None:
    ends: list[Exception | None] = []
    sessions.save(model_id, name, ends.append)
    _raise(ends)


def load(sessions: Sessions, model_id: str, name: str) -> None:
    ends: list[Exception | None] = []
    sessions.load(model_id, name, ends.append)
    _raise(ends)


def _raise(ends: list[Exception | None]) -> None:
    (error,) = ends
    if error is not None:
        raise error
