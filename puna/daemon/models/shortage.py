"""Says what a model needs that does not fit, and who holds the rest."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from puna.config.sizes import binary_size
from puna.engine.request import EngineStats, ModelStats
from puna.kv.budget import Shortage


def could_fit(shortage: Shortage, stats: EngineStats, idle: Collection[str]) -> bool:
    """Whether it would help if all these models slept."""
    given = sum(
        max(model.committed_kv_bytes, model.minimum_kv_bytes) + model.weight_bytes * (not shortage.is_of_kv)
        for model in stats.models
        if model.model_id in idle and not model.is_asleep
    )
    return shortage.needed_bytes + shortage.taken_bytes - given <= shortage.limit_bytes


def could_be_leased(num_bytes: int, stats: EngineStats, idle: Collection[str]) -> bool:
    """Whether so much would be there for somebody outside the worker if all these models slept."""
    busy = [model for model in stats.models if model.model_id not in idle and not model.is_asleep]
    kv_bytes = sum(max(model.used_kv_bytes, model.minimum_kv_bytes) for model in busy)
    left = stats.memory_limit_bytes - sum(model.weight_bytes for model in busy)
    return stats.leased_bytes + kv_bytes + num_bytes <= min(stats.kv_limit_bytes, left)


def describe_shortage(
    name: str, weight_bytes: int, shortage: Shortage, stats: EngineStats, names: Mapping[str, str]
) -> str:
    """A sentence for users. weight_bytes: of the model itself; names: of the others, by id."""
    limit = binary_size(shortage.limit_bytes)
    if shortage.is_of_kv:
        text = f"{name} needs {binary_size(shortage.needed_bytes)} of KV memory, the limit is {limit}"
    else:
        kv_bytes = shortage.needed_bytes - weight_bytes
        text = (
            f"{name} needs {binary_size(shortage.needed_bytes)} (weights {binary_size(weight_bytes)}, "
            f"KV at least {binary_size(kv_bytes)}), the memory limit is {limit}"
        )
    holders = [*_models(stats, names, shortage.is_of_kv), *_leases(stats)]
    return f"{text}: {', '.join(holders)}" if holders else text


def describe_excess(excess_bytes: int, stats: EngineStats, *, is_elastic: bool) -> str:
    """A sentence for users: who has what exceeds a limit that was lowered, and when it goes."""
    awake = [model for model in stats.models if not model.is_asleep]
    used = sum(model.used_kv_bytes for model in awake)
    committed, weights = (
        sum(getattr(m, field) for m in awake) for field in ("committed_kv_bytes", "weight_bytes")
    )
    if stats.memory_limit_bytes - weights >= stats.kv_limit_bytes:
        weights = 0  # they are not in the way
    taken = [
        (committed * (not is_elastic), "reserved for models that are loaded"),
        (used * is_elastic, "in use by requests"),
        ((committed - used) * is_elastic, "in the same extents"),
        (stats.leased_bytes, "leased to others"),
        (weights, "of weights"),
    ]
    holders = ", ".join(f"{binary_size(num_bytes)} {what}" for num_bytes, what in taken if num_bytes > 0)
    promise = "it shrinks as requests finish" if used and is_elastic else ""
    text = f"{binary_size(excess_bytes)} more than that is taken" + (f": {holders}" if holders else "")
    return "; ".join(part for part in (text, promise, "nothing more is taken until then") if part)


def _models(stats: EngineStats, names: Mapping[str, str], is_of_kv: bool) -> Iterator[str]:
    for model in stats.models:
        held = [] if is_of_kv else [f"{binary_size(model.weight_bytes)} of weights"]
        held += _kv(model)
        if held and not model.is_asleep:
            yield f"{names.get(model.model_id, model.model_id)} holds {' and '.join(held)}"


def _kv(model: ModelStats) -> Iterator[str]:
    if model.used_kv_bytes:
        yield f"{binary_size(model.used_kv_bytes)} of KV in use"
    if model.minimum_kv_bytes > model.used_kv_bytes:
        yield f"{binary_size(model.minimum_kv_bytes)} of KV that it is sure of"


def _leases(stats: EngineStats) -> Iterator[str]:
    if stats.leased_bytes:
        yield f"{binary_size(stats.leased_bytes)} are leased to others"
