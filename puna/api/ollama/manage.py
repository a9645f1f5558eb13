"""DELETE /api/delete and POST /api/copy: names in the store."""

from __future__ import annotations

from functools import partial

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from puna.api.bodies.body import read_body
from puna.api.context import context_of
from puna.api.errors import ApiError
from puna.registry import InvalidModelName, ModelName, ModelNotFound
from puna.registry.creation.copying import copy_model
from puna.registry.in_thread import in_thread


class DeleteRequest(msgspec.Struct):
    """`name` is an older spelling of `model`."""

    model: str = ""
    name: str = ""


class CopyRequest(msgspec.Struct):
    """Two model names."""

    source: str = ""
    destination: str = ""


async def delete(request: Request) -> Response:
    """Deletes a model. Requests that run may finish."""
    body = await read_body(request, DeleteRequest)
    if not (text := body.model or body.name):
        raise ApiError(400, "model is required")
    try:
        name = ModelName.parse(text)
    except InvalidModelName as error:
        raise ApiError(400, f'name "{text}" is invalid') from error
    try:
        await context_of(request).runtime.delete(name)
    except ModelNotFound as error:
        raise ApiError(404, f"model '{text}' not found") from error
    return Response()


async def copy(request: Request) -> Response:
    """Gives a model another name: only the manifest is duplicated."""
    body = await read_body(request, CopyRequest)
    source = _parse(body.source, "source")
    destination = _parse(body.destination, "destination")
    if source.key != destination.key:
        runtime = context_of(request).runtime
        prunes = not runtime.settings.no_prune
        try:
            await in_thread(partial(copy_model, runtime.store, source, destination, prunes=prunes))
        except ModelNotFound as error:
            raise ApiError(404, f'model "{body.source}" not found') from error
    return Response()


def _parse(text: str, role: str) -> ModelName:
    try:
        return ModelName.parse(text)
    except InvalidModelName as error:
        raise ApiError(400, f'{role} "{text}" is invalid') from error
