"""POST /api/show: everything about one model."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec
import numpy as np
from starlette.requests import Request
from starlette.responses import Response

from puna.api.body import read_body
from puna.api.context import context_of
from puna.api.errors import ApiError
from puna.api.inspection import ModelFacts
from puna.api.names import parse_name
from puna.api.ollama.listing import ModelDetails, details_of
from puna.api.ollama.modelfile import modelfile_text, parameters_text
from puna.api.replies import JSON_MEDIA_TYPE
from puna.gguf import GgufFile
from puna.registry import ModelNotFound, StoredMessage, StoredModel, parse_digest

_HIDDEN_KEYS = ("general.name", "tokenizer.chat_template")  # shown elsewhere, or by the name itself


class ShowRequest(msgspec.Struct):
    """`system` and `options` are laid over what the model has."""

    model: str = ""
    name: str = ""
    verbose: bool = False
    system: str = ""
    options: dict[str, Any] = {}


class TensorEntry(msgspec.Struct):
    """A tensor; shape as GGUF has it, fastest first."""

    name: str
    type: str
    shape: tuple[int, ...]


class OriginReply(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Where the weights came from; what is not known is left out."""

    source: str
    version: str = ""
    url: str = ""
    package_digest: str = ""
    digest: str
    """Of the weights."""


class ShowReply(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The reply; what a model does not have is left out. `origin` is not Ollama's."""

    license: str = ""
    modelfile: str = ""
    parameters: str = ""
    template: str = ""
    system: str = ""
    details: ModelDetails
    messages: list[StoredMessage] = []
    model_info: dict[str, Any]
    tensors: list[TensorEntry] = []
    capabilities: tuple[str, ...] = ()
    origin: OriginReply | None = None
    modified_at: datetime


async def show(request: Request) -> Response:
    """POST /api/show."""
    body = await read_body(request, ShowRequest)
    if not (text := body.model or body.name):
        raise ApiError(400, "model is required")
    context = context_of(request)
    name = parse_name(text)
    try:
        model = await asyncio.to_thread(context.runtime.store.find, name)
    except ModelNotFound as error:
        raise ApiError(404, f"model '{name.short}' not found") from error
    facts = await context.inspector.facts(model)
    # Vocabularies are long: encoding them must not hold up the streams of others.
    reply = await asyncio.to_thread(lambda: msgspec.json.encode(_describe(model, facts, body)))
    return Response(reply, media_type=JSON_MEDIA_TYPE)


def _describe(model: StoredModel, facts: ModelFacts, body: ShowRequest) -> ShowReply:
    system = body.system or model.system or ""
    parameters = {**model.params, **body.options}
    with GgufFile(model.model_path) as file:
        tensors = [TensorEntry(tensor.name, tensor.type, tensor.shape) for tensor in file.tensors.values()]
        model_info = _model_info(file, verbose=body.verbose)
    return ShowReply(
        license="\n".join(model.licenses),
        modelfile=modelfile_text(model, system, parameters),
        parameters=parameters_text(parameters),
        template=facts.template or model.template or "",
        system=system,
        details=details_of(model.config),
        messages=model.messages,
        model_info=model_info,
        tensors=tensors,
        capabilities=facts.capabilities,
        origin=_origin(model),
        modified_at=model.modified_at,
    )


def _origin(model: StoredModel) -> OriginReply | None:
    if model.origin is None:
        return None
    return OriginReply(**msgspec.structs.asdict(model.origin), digest=parse_digest(model.weights_id))


def _model_info(file: GgufFile, *, verbose: bool) -> dict[str, Any]:
    info = {
        key: _json_value(file.metadata, key, verbose=verbose)
        for key in file.metadata
        if key not in _HIDDEN_KEYS
    }
    info["general.parameter_count"] = sum(math.prod(tensor.shape) for tensor in file.tensors.values())
    return info


def _json_value(metadata: Mapping[str, Any], key: str, *, verbose: bool) -> Any:
    """A metadata value as JSON can have it; arrays that are not empty are null unless `verbose`."""
    value = metadata[key]
    if isinstance(value, list | np.ndarray):
        return _clean(value) if verbose or not len(value) else None
    return _clean(value)


def _clean(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, list):
        return [_clean(item) for item in value]
    if isinstance(value, str):  # bytes that are not UTF-8 come as surrogates, which JSON cannot have
        return value.encode(errors="surrogateescape").decode(errors="replace")
    return value
