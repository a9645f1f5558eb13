"""POST /api/create: a model from a GGUF file that was uploaded before."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator
from typing import Any

import msgspec
from starlette.requests import Request

from puna.api.body import read_body
from puna.api.context import ApiContext, context_of
from puna.api.errors import ApiError
from puna.api.ollama.progress import progress_response
from puna.api.streaming import EventResponse
from puna.gguf import GgufError
from puna.registry import Digest, MissingBlob, ModelName, Origin, parse_digest
from puna.registry.creation.description import WeightsDescription
from puna.registry.creation.from_gguf import create_from_gguf
from puna.registry.progress import Progress
from puna.registry.store.origin import read_origin


class CreateRequest(msgspec.Struct):
    """Fields of type Any are those that puna can't honour yet: a request that has one is refused."""

    model: str = ""
    name: str = ""
    files: dict[str, str] = {}
    stream: bool = True
    from_: Any = msgspec.field(default=None, name="from")
    adapters: Any = None
    draft_files: Any = None
    draft_quantize: Any = None
    template: Any = None
    system: Any = None
    renderer: Any = None
    parser: Any = None
    requires: Any = None
    license: Any = None
    parameters: Any = None
    messages: Any = None
    quantize: Any = None
    quantization: Any = None
    info: Any = None
    remote_host: Any = None


async def create(request: Request) -> EventResponse[Progress]:
    """Makes a model of one uploaded GGUF file."""
    body = await read_body(request, CreateRequest)
    name = ModelName.parse(body.model or body.name)
    file_name, digest = _only_file(body)
    events = _create(context_of(request), name, file_name, digest)
    return progress_response(events, stream=body.stream)


def _only_file(body: CreateRequest) -> tuple[str, Digest]:
    """Name and digest of the one file. ApiError (400) for every other form of the request."""
    if not body.files and not body.from_:
        raise ApiError(400, "neither 'from' or 'files' was specified")
    for field in msgspec.structs.fields(body):
        if field.type is Any and getattr(body, field.name):
            raise ApiError(400, f"creating a model with '{field.encode_name}' is not supported yet")
    if any(path.startswith("/") or ".." in path.split("/") for path in body.files):
        raise ApiError(400, "file path must be relative")
    if len(body.files) > 1:
        raise ApiError(400, "creating a model from more than one file is not supported yet")
    ((file_name, digest),) = body.files.items()
    return file_name, parse_digest(digest)


async def _create(
    context: ApiContext, name: ModelName, file_name: str, digest: Digest
) -> AsyncGenerator[Progress, None]:
    yield Progress("parsing GGUF")
    store = context.runtime.store
    try:
        description = await _describe(context, digest)
        origin = None if read_origin(store.root, digest) else Origin(source=f"file:{file_name[:255]}")
        model = await asyncio.to_thread(create_from_gguf, store, name, digest, description, origin)
    except (GgufError, MissingBlob) as error:
        raise ApiError(400, str(error)) from error
    yield Progress(f"using existing layer {digest}")
    yield Progress(f"creating new layer {model.manifest.config.digest}")
    yield Progress("writing manifest")
    yield Progress("success")


async def _describe(context: ApiContext, digest: Digest) -> WeightsDescription:
    """Raises MissingBlob, StoreError, GgufError."""
    descriptor = context.runtime.store.open_blob(digest)
    try:
        return await context.inspector.describe(descriptor)
    finally:
        os.close(descriptor)
