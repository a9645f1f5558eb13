"""POST /api/pull."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import msgspec
from starlette.requests import Request

from puna.api.bodies.body import read_body
from puna.api.context import ApiContext, context_of
from puna.api.ollama.progress import progress_response
from puna.api.replying.streaming import EventResponse
from puna.registry import ModelName
from puna.registry.progress import Progress
from puna.registry.pull import pull as pull_model
from puna.registry.remote.registry_pull import RegistryAccess


class PullRequest(msgspec.Struct):
    """`name` is an older spelling of `model`; `insecure`: the registry is spoken to without TLS."""

    model: str = ""
    name: str = ""
    insecure: bool = False
    stream: bool = True


async def pull(request: Request) -> EventResponse[Progress]:
    """Fetches a model into the store and reports how far it is; who asks for the same meanwhile shares it."""
    body = await read_body(request, PullRequest)
    name = ModelName.parse(body.model or body.name)
    events = pulled(context_of(request), name, insecure=body.insecure)
    return progress_response(events, stream=body.stream)


def pulled(context: ApiContext, name: ModelName, *, insecure: bool = False) -> AsyncGenerator[Progress, None]:
    """The statuses of a pull, which all share who want the same."""
    access = RegistryAccess.of(context.runtime.settings, insecure=insecure)
    return context.pulls.watch(
        (name.key, insecure),
        lambda: pull_model(context.runtime.store, name, context.inspector.describe, access),
    )
