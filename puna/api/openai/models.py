"""GET /v1/models and /v1/models/{model}, for clients of OpenAI and of Anthropic alike: the fields of both."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from puna.api.context import context_of
from puna.api.names import find_model
from puna.api.replying.replies import json_response
from puna.registry import ModelEntry


class ModelObject(msgspec.Struct, kw_only=True):
    """A stored model."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str
    type: Literal["model"] = "model"
    display_name: str
    created_at: datetime


class ModelList(msgspec.Struct, kw_only=True):
    """All of them are on one page, whatever page is asked for."""

    object: Literal["list"] = "list"
    data: list[ModelObject]
    has_more: Literal[False] = False
    first_id: str | None
    last_id: str | None


async def list_models(request: Request) -> Response:
    """The models of the store, newest first."""
    models = await asyncio.to_thread(context_of(request).runtime.store.list)
    data = [_object(model.name.short, model) for model in models]
    ends = (data[0].id, data[-1].id) if data else (None, None)
    return json_response(ModelList(data=data, first_id=ends[0], last_id=ends[1]))


async def retrieve_model(request: Request) -> Response:
    """One model, under the name it is asked for."""
    name = request.path_params["model"]
    return json_response(_object(name, await find_model(context_of(request).runtime.store, name)))


def _object(shown: str, model: ModelEntry) -> ModelObject:
    created = model.modified_at.astimezone(UTC).replace(microsecond=0)
    return ModelObject(
        id=shown,
        created=int(created.timestamp()),
        owned_by=model.name.namespace,
        display_name=model.name.short,
        created_at=created,
    )
