"""Hyperparameters that decoder-only transformers share."""

from __future__ import annotations

import msgspec

from puna.models.hyperparameters import MAX_CONTEXT, HyperparameterError, Hyperparameters


class Decoder(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes of a decoder-only transformer; the largest allowed are several times those of any real model."""

    num_layers: int
    width: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    norm_eps: float
    context_length: int

    @property
    def width_per_head(self) -> int:
        """What head_dim would be if the heads shared out the width."""
        return self.width // self.num_heads

    @classmethod
    def read(cls, p: Hyperparameters) -> Decoder:
        width = p.integer("embedding_length", maximum=1 << 17)
        num_heads = p.integer("attention.head_count", maximum=1024)
        num_kv_heads = p.integer("attention.head_count_kv", num_heads, maximum=num_heads)
        if num_heads % num_kv_heads:
            raise HyperparameterError(f"{num_heads} heads cannot be shared out over {num_kv_heads} KV heads")
        head_dim = p.integer("attention.key_length", max(1, width // num_heads), maximum=1024)
        if p.integer("attention.value_length", head_dim) != head_dim:
            raise HyperparameterError(
                f"metadata {p.key('attention.value_length')} differs from the key length"
            )
        return cls(
            num_layers=p.integer("block_count", maximum=1024),
            width=width,
            num_heads=num_heads,
            num_kv_heads=num_kv_heads,
            head_dim=head_dim,
            norm_eps=p.number("attention.layer_norm_rms_epsilon"),
            context_length=p.integer("context_length", maximum=MAX_CONTEXT),
        )
