"""GET and DELETE /api/sessions, POST /api/sessions/save and load: KV that is kept under a name."""

from __future__ import annotations

from datetime import datetime

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from puna.api.bodies.body import read_body
from puna.api.context import context_of
from puna.api.errors import ApiError
from puna.api.names import find_model
from puna.api.replying.replies import json_response
from puna.daemon.sessions import SessionEntry
from puna.registry import ModelNotFound


class SessionRequest(msgspec.Struct):
    """Which session of which model."""

    model: str = ""
    name: str = ""

    def check(self) -> None:
        """ApiError (400) if one is missing."""
        for field in ("model", "name"):
            if not getattr(self, field):
                raise ApiError(400, f"{field} is required")


class ListedSession(msgspec.Struct, kw_only=True):
    """An entry of GET /api/sessions."""

    name: str
    model: str
    tokens: int
    size: int
    pinned: bool
    saved: bool
    saved_at: datetime | None


async def list_sessions(request: Request) -> Response:
    """Conversations that are kept."""
    entries = await context_of(request).runtime.sessions.list()
    return json_response({"sessions": [_listed(entry) for entry in entries]})


async def save(request: Request) -> Response:
    """Keeps a conversation on disk."""
    model, name = await _read(request)
    return json_response(_listed(await context_of(request).runtime.sessions.save(model, name)))


async def load(request: Request) -> Response:
    """From disk to memory, with the model if it is not loaded."""
    model, name = await _read(request)
    return json_response(_listed(await context_of(request).runtime.sessions.load(model, name)))


async def remove(request: Request) -> Response:
    """Forgets a conversation, in memory and on disk."""
    body = await read_body(request, SessionRequest)
    body.check()
    try:
        await context_of(request).runtime.sessions.remove(body.model, body.name)
    except ModelNotFound as error:
        raise ApiError(404, f"model '{body.model}' not found") from error
    return Response()


async def _read(request: Request) -> tuple[str, str]:
    """Names of the model and of the session. ApiError (400, 404)."""
    body = await read_body(request, SessionRequest)
    body.check()
    model = await find_model(context_of(request).runtime.store, body.model)
    return str(model.name), body.name


def _listed(entry: SessionEntry) -> ListedSession:
    return ListedSession(
        name=entry.name,
        model=entry.model,
        tokens=entry.num_tokens,
        size=entry.size,
        pinned=entry.pinned,
        saved=entry.saved_at is not None,
        saved_at=entry.saved_at,
    )
