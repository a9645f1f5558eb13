"""Hyperparameters that decoder-only transformers share."""

from __future__ import annotations

import msgspec

from puna.models.hyperparameters import MAX_CONTEXT, HyperparameterError, Hyperparameters

PREDICTION_LAYERS = "nextn_predict_layers"


def num_prediction_layers(p: Hyperparameters) -> int:
    """Layers behind the others that only predict further tokens (MTP); they are not used."""
    return p.integer(PREDICTION_LAYERS, 0, minimum=0)


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
        if (
            not p.has("attention.value_length_mla")
            and p.integer("attention.value_length", head_dim) != head_dim
        ):
            raise HyperparameterError(
                f"metadata {p.key('attention.value_length')} differs from the key length"
            )
        num_layers, num_more = p.integer("block_count", maximum=1024), num_prediction_layers(p)
        if num_more >= num_layers:
            raise HyperparameterError(
                f"metadata {p.key(PREDICTION_LAYERS)} is {num_more} of {num_layers} layers"
            )
        return cls(
            num_layers=num_layers - num_more,
            width=width,
            num_heads=num_heads,
            num_kv_heads=num_kv_heads,
            head_dim=head_dim,
            norm_eps=p.number("attention.layer_norm_rms_epsilon"),
            context_length=p.integer("context_length", maximum=MAX_CONTEXT),
        )
