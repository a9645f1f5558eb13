"""The text about memory that is in use beyond a limit that was lowered."""

from __future__ import annotations

from puna.config.sizes import binary_size
from puna.engine.observation.stats import EngineStats


def describe_excess(excess_bytes: int, stats: EngineStats, *, is_elastic: bool) -> str:
    """A sentence for users: who holds memory beyond a limit that was lowered, and when they give it back."""
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
