"""Heads of attention that differ from layer to layer: those of layers with a window may have a size of their
own.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from puna.models.hyperparameters import HyperparameterError, Hyperparameters

_MAX_HEADS = _MAX_HEAD_DIM = 1024


class Heads(msgspec.Struct, frozen=True, kw_only=True):
    """Of one layer. window: how many of the latest tokens they see; 0: all."""

    num_heads: int
    num_kv_heads: int
    head_dim: int
    window: int


def layer_heads(p: Hyperparameters, windows: Sequence[int]) -> list[Heads]:
    """windows: of each layer."""
    num_heads = p.integers("attention.head_count", len(windows), maximum=_MAX_HEADS)
    kv_heads = p.integers("attention.head_count_kv", len(windows), maximum=_MAX_HEADS)
    width = p.integer("embedding_length")
    full = _head_dim(p, "", max(1, width // max(*num_heads, 1)))
    windowed = _head_dim(p, "_swa", full)
    for layer, (heads, kv) in enumerate(zip(num_heads, kv_heads, strict=True)):
        if not kv or not heads or heads % kv:
            raise HyperparameterError(
                f"metadata {p.key('attention')}: layer {layer}: {heads} heads for {kv} KV heads"
            )
    return [
        Heads(num_heads=heads, num_kv_heads=kv, head_dim=windowed if window else full, window=window)
        for heads, kv, window in zip(num_heads, kv_heads, windows, strict=True)
    ]


def _head_dim(p: Hyperparameters, suffix: str, default: int) -> int:
    head_dim = p.integer(f"attention.key_length{suffix}", default, maximum=_MAX_HEAD_DIM)
    name = f"attention.value_length{suffix}"
    if p.integer(name, head_dim) != head_dim:
        raise HyperparameterError(f"metadata {p.key(name)} differs from the key length")
    return head_dim
