"""GET /api/kv, POST /api/kv/limit and trim: the memory that all models share."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from puna.api.bodies.body import read_body
from puna.api.context import context_of
from puna.api.errors import ApiError
from puna.api.replying.replies import json_response
from puna.config.quantities import parse_memory_limit
from puna.daemon.models.shortage import describe_excess
from puna.daemon.odd_settings import odd_limits
from puna.daemon.runtime import Observation, Runtime
from puna.engine.observation.metrics import ModelMetrics
from puna.engine.observation.stats import EngineStats, ModelStats
from puna.worker.engine.messages import TrimKv

log = logging.getLogger(__name__)


class LimitRequest(msgspec.Struct, kw_only=True):
    """New limits, in bytes or as "4GB"; what is not given stays."""

    kv_limit: int | str | None = None
    memory_limit: int | str | None = None


class Limits(msgspec.Struct, kw_only=True):
    """Reply of POST /api/kv/limit; all in bytes."""

    kv_limit: int
    memory_limit: int
    excess: int
    """What is taken beyond the limits."""
    note: str
    """Who has that, and when it goes; empty if there is no excess."""
    warnings: list[str]
    """What is odd about what was asked for."""


class GroupMemory(msgspec.Struct, kw_only=True):
    """KV of layers that see equally many tokens, or states of recurrent ones, in bytes."""

    window: int | None
    """How many; null: all."""
    states: bool
    """Then `used` are those of requests, `cached` snapshots."""
    used: int
    cached: int


class PromptTokens(msgspec.Struct, kw_only=True):
    """Where the KV of prompts came from, in tokens, since the worker began."""

    computed: int = 0
    """More than once where requests had to start over."""
    in_memory: int = 0
    """Found there; this and the next are counted with a request's first token."""
    on_disk: int = 0


class ModelMemory(msgspec.Struct, kw_only=True):
    """Memory of one model, in bytes, and what uses it."""

    name: str
    state: Literal["resident", "asleep"]
    weights: int
    reserved: int
    """Addresses of KV; memory comes and goes with what is committed."""
    committed: int
    used: int
    """Committed, and held by requests or sessions."""
    cached: int
    """Committed, and held by nobody, but the next request may find it."""
    guaranteed: int
    """KV that is guaranteed to the model."""
    groups: list[GroupMemory]
    hit_rate: float | None
    """Share of prompt tokens whose KV was there already, since the worker began; None: no prompt yet."""
    prompt_tokens: PromptTokens
    running: int
    waiting: int


class DiskMemory(msgspec.Struct, kw_only=True):
    """KV on disk, of all models."""

    limit: int
    size: int
    restored_tokens: int
    """Since the worker began."""
    saved_tokens: int


class Memory(msgspec.Struct, kw_only=True):
    """Reply of GET /api/kv; all in bytes."""

    kv_limit: int
    memory_limit: int
    """For weights and KV together."""
    committed: int
    """KV of the models."""
    leased: int
    """KV memory that others hold; it counts to the limits, too."""
    disk: DiskMemory | None
    """None: nothing is kept on disk."""
    prompt_tokens: PromptTokens
    """Of all models, those that were unloaded among them."""
    since: datetime | None
    """When that began to be counted."""
    models: list[ModelMemory]


async def show(request: Request) -> Response:
    """Memory of the KV cache. Loads nothing."""
    return json_response(await _memory(context_of(request).runtime))


async def limit(request: Request) -> Response:
    """Sets limits of memory: for the running daemon, not for later ones."""
    body = await read_body(request, LimitRequest)
    if body.kv_limit is None and body.memory_limit is None:
        raise ApiError(400, "kv_limit or memory_limit is required")
    runtime = context_of(request).runtime
    asked = _size("kv_limit", body.kv_limit), _size("memory_limit", body.memory_limit)
    excess = await runtime.set_limits(*asked)
    stats = (await _observed(runtime)).stats
    assert stats is not None, "the worker was waited for"
    note = describe_excess(excess, stats, is_elastic=runtime.settings.elastic) if excess else ""
    if note:
        log.warning("lower limits of memory: %s", note)
    warnings = odd_limits(*asked)
    for warning in warnings:
        log.warning(warning)
    limits = Limits(
        kv_limit=stats.kv_limit_bytes,
        memory_limit=stats.memory_limit_bytes,
        excess=excess,
        note=note,
        warnings=warnings,
    )
    return json_response(limits)


async def trim(request: Request) -> Response:
    """Gives memory that no request needs now back to the system."""
    return json_response({"freed": await context_of(request).runtime.worker.call(TrimKv())})


async def _observed(runtime: Runtime) -> Observation:
    """ApiError (503), WorkerDied."""
    try:
        return await runtime.observe(wait=True)
    except TimeoutError:
        raise ApiError(503, "the worker does not answer") from None


async def _memory(runtime: Runtime) -> Memory:
    """ApiError (503), WorkerDied."""
    observation = await _observed(runtime)
    assert observation.stats is not None, "the worker was waited for"
    return _described(observation.stats, observation.model_names)


def _described(stats: EngineStats, names: Mapping[str, str]) -> Memory:
    models = [_model(model, names, stats.metrics.get(model.model_id)) for model in stats.models]
    disk = stats.disk
    return Memory(
        kv_limit=stats.kv_limit_bytes,
        memory_limit=stats.memory_limit_bytes,
        committed=sum(model.committed for model in models),
        leased=stats.leased_bytes,
        disk=None
        if disk is None
        else DiskMemory(
            limit=disk.limit_bytes,
            size=disk.num_bytes,
            restored_tokens=disk.restored_tokens,
            saved_tokens=disk.saved_tokens,
        ),
        prompt_tokens=_prompt_tokens(stats.metrics.values()),
        since=stats.since,
        models=sorted(models, key=lambda model: model.name),
    )


def _model(model: ModelStats, names: Mapping[str, str], metrics: ModelMetrics | None) -> ModelMemory:
    return ModelMemory(
        name=names.get(model.model_id, model.model_id),
        state="asleep" if model.is_asleep else "resident",
        weights=model.weight_bytes,
        reserved=model.reserved_kv_bytes,
        committed=model.committed_kv_bytes,
        used=model.used_kv_bytes,
        cached=model.cached_kv_bytes,
        guaranteed=model.guaranteed_kv_bytes,
        groups=[
            GroupMemory(
                window=group.window,
                states=group.is_state,
                used=group.num_used * group.block_bytes,
                cached=group.num_cached * group.block_bytes,
            )
            for group in model.kv_groups
        ],
        hit_rate=metrics.cached_tokens / metrics.prompt_tokens if metrics and metrics.prompt_tokens else None,
        prompt_tokens=_prompt_tokens([metrics] if metrics else []),
        running=model.num_running,
        waiting=model.num_waiting,
    )


def _prompt_tokens(metrics: Iterable[ModelMetrics]) -> PromptTokens:
    found = PromptTokens()
    for model in metrics:
        found.computed += model.computed_tokens
        found.in_memory += model.cached_tokens - model.restored_tokens
        found.on_disk += model.restored_tokens
    return found


def _size(field: str, value: int | str | None) -> int | None:
    if value is None:
        return None
    try:
        return parse_memory_limit(str(value))
    except ValueError as error:
        raise ApiError(400, f"{field}: {error}") from None
