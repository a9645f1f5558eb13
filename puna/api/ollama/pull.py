"""POST /api/pull."""

from __future__ import annotations

import msgspec
from starlette.requests import Request

from puna.api.body import read_body
from puna.api.context import context_of
from puna.api.ollama.progress import progress_response
from puna.api.streaming import EventResponse
from puna.registry.pull import Progress
from puna.registry.pull import pull as pull_model


class PullRequest(msgspec.Struct):
    """`name` is an older spelling of `model`."""

    model: str = ""
    name: str = ""
    stream: bool = True


async def pull(request: Request) -> EventResponse[Progress]:
    """Fetches a model into the store, and reports how far it is."""
    body = await read_body(request, PullRequest)
    events = pull_model(context_of(request).runtime.store, body.model or body.name)
    return progress_response(events, stream=body.stream)
