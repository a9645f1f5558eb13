"""POST /api/show: everything about one model."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Iterator
from datetime import datetime
from typing import Any

import msgspec
from starlette.requests import Request

from puna.api.bodies.body import read_body
from puna.api.context import context_of
from puna.api.errors import ApiError
from puna.api.inspection import Inspector
from puna.api.names import parse_name
from puna.api.ollama.errors import ollama_error_body
from puna.api.ollama.listing import ModelDetails, details_of
from puna.api.replying.replies import JSON_MEDIA_TYPE
from puna.api.replying.streaming import EventResponse
from puna.chat.model_record import ModelRecord
from puna.registry import ModelNotFound, StoredMessage, StoredModel, parse_digest
from puna.registry.modelfile.of_model import modelfile_text
from puna.registry.modelfile.parameters import parameters_text

_CHUNK_BYTES = 1 << 18
_FILE_SOURCES = ("gguf_chat_template", "renderer", "renderer_parser")
_WANTS_NAME = "GitHubCopilotChat/"
"""Of clients that show models by `general.basename`: they get what they asked for."""


class ShowRequest(msgspec.Struct):
    """`system` and `options` are laid over what the model has."""

    model: str = ""
    name: str = ""
    verbose: bool = False
    system: str = ""
    options: dict[str, Any] = {}


class OriginReply(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Where the weights came from; what is not known is left out."""

    source: str
    version: str = ""
    url: str = ""
    package_digest: str = ""
    digest: str
    """Of the weights."""


class ThinkingReply(msgspec.Struct):
    """What `think` may be, and what it is if it is not given."""

    values: list[bool | str]
    default: bool | str


class ShowHead(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What the reply has besides what files say of themselves: model_info, tensors, template, projector_info.

    What a model does not have is left out. `origin` is not Ollama's.
    """

    license: str = ""
    modelfile: str = ""
    parameters: str = ""
    template: str = ""
    """If it is not the file's."""
    template_source: str = ""
    renderer: str = ""
    parser: str = ""
    requires: str = ""
    thinking: ThinkingReply | None = None
    system: str = ""
    details: ModelDetails
    messages: list[StoredMessage] = []
    capabilities: tuple[str, ...] = ()
    origin: OriginReply | None = None
    modified_at: datetime


async def show(request: Request) -> EventResponse[bytes]:
    """What is known of a model."""
    body = await read_body(request, ShowRequest)
    if not (text := body.model or body.name):
        raise ApiError(400, "model is required")
    inspector = context_of(request).inspector
    name = parse_name(text)
    try:
        model = await asyncio.to_thread(context_of(request).runtime.store.find, name)
    except ModelNotFound as error:
        raise ApiError(404, f"model '{name.short}' not found") from error
    wants_name = request.headers.get("user-agent", "").startswith(_WANTS_NAME)
    pieces = _pieces(inspector, model, body, basename=text if wants_name else "")
    return EventResponse(pieces, _PieceFraming(), stream=True)


async def _pieces(
    inspector: Inspector, model: StoredModel, body: ShowRequest, basename: str
) -> AsyncGenerator[bytes, None]:
    """Of one JSON object, which is long where vocabularies are in it."""
    record = await inspector.record(model)
    head = await asyncio.to_thread(lambda: msgspec.json.encode(_head(model, record, body)))
    with_template = not _shows_own_template(model, record)
    described = inspector.described(
        model, verbose=body.verbose, with_template=with_template, basename=basename
    )
    async with described as description:
        yield head[:-1] + b","
        for piece in _pieces_of(description):
            yield piece
    if model.projector_path is not None:
        async with inspector.described_projector(model, verbose=body.verbose) as description:
            yield b","
            for piece in _pieces_of(description):
                yield piece
    yield b"}"


def _pieces_of(descriptor: int) -> Iterator[bytes]:
    offset = 0
    while piece := os.pread(descriptor, _CHUNK_BYTES, offset):
        offset += len(piece)
        yield piece


class _PieceFraming:
    """Pieces are bytes already."""

    media_type = JSON_MEDIA_TYPE

    def is_whole(self, first: bytes) -> bool:  # noqa: ARG002
        return False

    def frame(self, event: bytes) -> bytes:
        return event

    def end(self) -> bytes:
        return b""

    def error_frame(self, error: ApiError) -> bytes:  # noqa: ARG002
        return b""  # what has been sent is no whole object, which says enough

    def body(self, events: list[bytes]) -> bytes:
        return b"".join(events)

    def error_body(self, error: ApiError) -> bytes:
        return ollama_error_body(error)


def _head(model: StoredModel, record: ModelRecord, body: ShowRequest) -> ShowHead:
    system = body.system or model.system or ""
    parameters = {**model.params, **body.options}
    return ShowHead(
        license="\n".join(model.licenses),
        modelfile=modelfile_text(model, system, parameters),
        parameters=parameters_text(parameters),
        template=model.template or "" if _shows_own_template(model, record) else "",
        template_source=record.template_source,
        renderer=model.config.renderer or "",
        parser=model.config.parser or "",
        requires=model.config.requires or "",
        thinking=_thinking(record),
        system=system,
        details=details_of(model.config, record, parent=model.parent),
        messages=model.messages,
        capabilities=record.capabilities,
        origin=_origin(model),
        modified_at=model.modified_at,
    )


def _shows_own_template(model: StoredModel, record: ModelRecord) -> bool:
    """Whether the template in use is not the file's."""
    return bool(model.template) and record.template_source not in _FILE_SOURCES


def _thinking(record: ModelRecord) -> ThinkingReply | None:
    if "thinking" not in record.capabilities:
        return None
    return ThinkingReply([True, False, *record.think_levels], True)


def _origin(model: StoredModel) -> OriginReply | None:
    if model.origin is None:
        return None
    return OriginReply(**msgspec.structs.asdict(model.origin), digest=parse_digest(model.weights_id))
