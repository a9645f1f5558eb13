"""The text for a model that does not fit: what it needs, and what holds the rest."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from puna.config.sizes import binary_size
from puna.engine.model import Model
from puna.kv import Budget
from puna.kv.budget import Shortage


def describe_shortage(model: Model, shortage: Shortage, models: Iterable[Model], budget: Budget) -> str:
    """A sentence for users. models: all of them."""
    limit, needed = binary_size(shortage.limit_bytes), binary_size(shortage.needed_bytes)
    if shortage.is_of_kv:
        text = f"{model.name} needs {needed} of KV memory, the limit is {limit}"
    else:
        weight_bytes = model.device.info.weight_bytes - model.device.info.idle_weight_bytes
        kv_bytes = shortage.needed_bytes - weight_bytes
        text = (
            f"{model.name} needs {needed} (weights {binary_size(weight_bytes)}, "
            f"KV at least {binary_size(kv_bytes)}), the memory limit is {limit}"
        )
    holders = list(_holders(models, shortage.is_of_kv))
    if budget.leased_bytes:
        holders.append(f"{binary_size(budget.leased_bytes)} are leased to others")
    return f"{text}: {', '.join(holders)}" if holders else text


def _holders(models: Iterable[Model], is_of_kv: bool) -> Iterator[str]:
    for model in models:
        if model.is_awake and (held := [*_held(model, is_of_kv)]):
            yield f"{model.name} holds {' and '.join(held)}"


def _held(model: Model, is_of_kv: bool) -> Iterator[str]:
    used_bytes = model.kv.used_bytes
    if not is_of_kv:
        yield f"{binary_size(model.counted_weight_bytes)} of weights"
    if used_bytes:
        yield f"{binary_size(used_bytes)} of KV in use"
    if model.guaranteed_bytes > used_bytes:
        yield f"{binary_size(model.guaranteed_bytes)} of KV that is guaranteed to it"
