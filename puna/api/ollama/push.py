"""POST /api/push."""

from __future__ import annotations

import msgspec
from starlette.requests import Request

from puna.api.bodies.body import read_body
from puna.api.context import context_of
from puna.api.errors import ApiError
from puna.api.ollama.progress import progress_response
from puna.api.replying.streaming import EventResponse
from puna.registry import ModelName
from puna.registry.progress import Progress
from puna.registry.remote.registry_pull import RegistryAccess
from puna.registry.remote.registry_push import push as push_model


class PushRequest(msgspec.Struct):
    """`name` is an older spelling of `model`; `insecure`: the registry is spoken to without TLS."""

    model: str = ""
    name: str = ""
    insecure: bool = False
    stream: bool = True


async def push(request: Request) -> EventResponse[Progress]:
    """Sends a model to its registry and reports how far it is."""
    body = await read_body(request, PushRequest)
    if not (text := body.model or body.name):
        raise ApiError(400, "model is required")
    runtime = context_of(request).runtime
    access = RegistryAccess.of(runtime.settings, insecure=body.insecure)
    return progress_response(push_model(runtime.store, ModelName.parse(text), access), stream=body.stream)
