"""GET /v1/models and /v1/models/{model}."""

from __future__ import annotations

import asyncio
from typing import Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from puna.api.context import context_of
from puna.api.names import find_model
from puna.api.replies import json_response
from puna.registry import ModelEntry


class ModelObject(msgspec.Struct, kw_only=True):
    """A stored model."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str


async def list_models(request: Request) -> Response:
    """Newest first."""
    models = await asyncio.to_thread(context_of(request).runtime.store.list)
    return json_response({"object": "list", "data": [_object(model.name.short, model) for model in models]})


async def retrieve_model(request: Request) -> Response:
    """One model, under the name it is asked for."""
    name = request.path_params["model"]
    return json_response(_object(name, await find_model(context_of(request).runtime.store, name)))


def _object(shown: str, model: ModelEntry) -> ModelObject:
    return ModelObject(id=shown, created=int(model.modified_at.timestamp()), owned_by=model.name.namespace)
