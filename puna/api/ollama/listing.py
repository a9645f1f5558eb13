"""GET /api/tags and /api/ps: what is stored, what is loaded."""

from __future__ import annotations

import asyncio
import logging
from datetime import datetime

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from puna.api.context import ApiContext, context_of
from puna.api.replying.replies import json_response
from puna.backends.base import Engine
from puna.chat.model_record import ModelRecord
from puna.engine.observation.stats import ModelStats
from puna.gguf import GgufError
from puna.registry import ModelConfig, ModelEntry, RegistryError

log = logging.getLogger(__name__)


class ModelDetails(msgspec.Struct, kw_only=True, omit_defaults=True):
    """`details` of a model; the lengths only in the list."""

    parent_model: str
    format: str
    family: str
    families: list[str] | None
    parameter_size: str
    quantization_level: str
    context_length: int = 0
    embedding_length: int = 0


class ListedModel(msgspec.Struct, kw_only=True, omit_defaults=True):
    """An entry of /api/tags."""

    name: str
    model: str
    modified_at: datetime
    size: int
    digest: str
    details: ModelDetails
    capabilities: tuple[str, ...] = ()


class KvUse(msgspec.Struct):
    """KV memory of a loaded model, in bytes."""

    committed: int
    used: int
    """By requests and sessions."""
    cached: int
    """Of earlier prompts, and others' for the asking."""


class LoadedModel(msgspec.Struct, kw_only=True, omit_defaults=True):
    """An entry of /api/ps; `engine` and `kv` are not Ollama's, the latter absent while nobody knows."""

    name: str
    model: str
    size: int
    digest: str
    details: ModelDetails
    expires_at: datetime
    size_vram: int
    context_length: int
    engine: Engine
    kv: KvUse | None = None


class ListedProcess(msgspec.Struct):
    """Of /api/ps, not Ollama's: a process that runs models, or reads their files."""

    name: str
    pid: int
    cage: str
    """What holds it, for people to read."""


def details_of(
    config: ModelConfig, record: ModelRecord | None = None, *, parent: str = "", has_lengths: bool = False
) -> ModelDetails:
    """From the config blob, or from what the file says where that is not known. parent: see ModelEntry."""
    record = record or ModelRecord()
    known = config
    if record.architecture and not config.family:
        known = ModelConfig(
            family=record.architecture,
            families=[record.architecture],
            parameter_size=record.parameter_size,
            quantization=record.quantization,
        )
    return ModelDetails(
        parent_model=parent,
        format=config.format,
        family=known.family,
        families=known.families,
        parameter_size=known.parameter_size,
        quantization_level=known.quantization,
        context_length=record.context_length if has_lengths else 0,
        embedding_length=record.embedding_length if has_lengths else 0,
    )


async def tags(request: Request) -> Response:
    """The models of the store, newest first."""
    context = context_of(request)
    models = await asyncio.to_thread(context.runtime.store.list)
    return json_response({"models": await asyncio.gather(*(_listed(context, model) for model in models))})


async def _listed(context: ApiContext, model: ModelEntry) -> ListedModel:
    record = None
    try:
        record = await context.inspector.record_for_list(model)
    except (GgufError, RegistryError) as error:
        log.warning("%s cannot be used: %s", model.name.short, error)
    return ListedModel(
        name=model.name.short,
        model=model.name.short,
        modified_at=model.modified_at,
        size=model.size,
        digest=model.digest,
        details=details_of(model.config, record, parent=model.parent, has_lengths=True),
        capabilities=record.capabilities if record else (),
    )


async def ps(request: Request) -> Response:
    """The models in memory, and the processes that run them."""
    loaded = [
        LoadedModel(
            name=status.name,
            model=status.name,
            size=status.size,
            digest=status.digest,
            details=details_of(status.config),
            expires_at=status.expires_at,
            size_vram=0,
            context_length=status.context_length,
            engine=status.engine,
            kv=_kv_use(status.kv),
        )
        for status in await context_of(request).runtime.loaded()
    ]
    processes = [
        ListedProcess(name, pid, cage.description)
        for name, pid, cage in context_of(request).runtime.processes()
    ]
    return json_response({"models": loaded, "processes": processes})


def _kv_use(stats: ModelStats | None) -> KvUse | None:
    if stats is None:
        return None
    return KvUse(committed=stats.committed_kv_bytes, used=stats.used_kv_bytes, cached=stats.cached_kv_bytes)
