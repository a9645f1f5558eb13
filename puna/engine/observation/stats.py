"""The load of an engine, as it is reported; these structs also travel over the worker's socket."""

from __future__ import annotations

from datetime import datetime

import msgspec

from puna.engine.observation.metrics import ModelMetrics
from puna.kv.group_stats import GroupStats


class ModelStats(msgspec.Struct):
    """Load of one resident model."""

    model_id: str
    num_running: int
    num_waiting: int
    num_preemptions: int
    """Since the model was loaded for the first time."""
    block_bytes: int
    """Of a KV block of all layers."""
    used_kv_bytes: int
    """KV blocks that a sequence holds."""
    cached_kv_bytes: int
    """KV blocks that no sequence holds, but the next one may find."""
    committed_kv_bytes: int
    """KV blocks that have memory: those in use, cached ones, and those kept for the next sequence."""
    reserved_kv_bytes: int = 0
    """Address space of its KV blocks."""
    guaranteed_kv_bytes: int = 0
    """KV memory that no other model takes."""
    weight_bytes: int = 0
    is_asleep: bool = False
    kv_groups: list[GroupStats] = []
    """Its KV blocks, by what layers see of a sequence; empty while it sleeps."""


class DiskStats(msgspec.Struct):
    """KV on disk, of all models."""

    limit_bytes: int
    num_bytes: int
    restored_tokens: int
    """Since the engine began."""
    saved_tokens: int


class EngineStats(msgspec.Struct):
    """Load of the engine."""

    kv_limit_bytes: int
    models: list[ModelStats]
    memory_limit_bytes: int = 0
    """For weights and KV together."""
    leased_bytes: int = 0
    """KV memory that others than the models hold."""
    disk: DiskStats | None = None
    """None: nothing is kept on disk."""
    since: datetime | None = None
    """When the engine began to count."""
    metrics: dict[str, ModelMetrics] = {}
    """By model id, of every model that ever was resident."""
