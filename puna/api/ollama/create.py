"""POST /api/create: a model from a GGUF file that was uploaded before."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import msgspec
from starlette.requests import Request

from puna.api.body import read_body
from puna.api.context import context_of
from puna.api.errors import ApiError
from puna.api.ollama.progress import progress_response
from puna.api.streaming import EventResponse
from puna.gguf import GgufError
from puna.registry import Digest, MissingBlob, ModelName, Store, parse_digest
from puna.registry.create import create_from_gguf
from puna.registry.pull import Progress


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
    digest = _only_file(body)
    events = _create(context_of(request).runtime.store, name, digest)
    return progress_response(events, stream=body.stream)


def _only_file(body: CreateRequest) -> Digest:
    """The digest of the one file. ApiError (400) for every other form of the request."""
    if not body.files and not body.from_:
        raise ApiError(400, "neither 'from' or 'files' was specified")
    for field in msgspec.structs.fields(body):
        if field.type is Any and getattr(body, field.name):
            raise ApiError(400, f"creating a model with '{field.encode_name}' is not supported yet")
    if any(path.startswith("/") or ".." in path.split("/") for path in body.files):
        raise ApiError(400, "file path must be relative")
    if len(body.files) > 1:
        raise ApiError(400, "creating a model from more than one file is not supported yet")
    (digest,) = body.files.values()
    return parse_digest(digest)


async def _create(store: Store, name: ModelName, digest: Digest) -> AsyncGenerator[Progress, None]:
    yield Progress("parsing GGUF")
    try:
        model = await asyncio.to_thread(create_from_gguf, store, name, digest)
    except (GgufError, MissingBlob) as error:
        # The path of the blob means nothing to the one who sent the file.
        text = str(error).removeprefix(f"{store.blob_path(digest)}: ")
        raise ApiError(400, text) from error
    yield Progress(f"using existing layer {digest}")
    yield Progress(f"creating new layer {model.manifest.config.digest}")
    yield Progress("writing manifest")
    yield Progress("success")
