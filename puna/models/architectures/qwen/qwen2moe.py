"""Qwen1.5 and Qwen2 with experts, one of which all tokens share."""

from __future__ import annotations

from puna.graph import Tracer, Value
from puna.models.blocks import causal_attention, pre_norm_decoder, qkv
from puna.models.decoder import Decoder
from puna.models.hyperparameters import Hyperparameters
from puna.models.recurrent.gated_delta_net import with_shared_expert
from puna.models.rope import FreqFactors, rope


def trace(g: Tracer, p: Hyperparameters, freq_factors: FreqFactors | None) -> Value:
    d = Decoder.read(p)
    rotation = rope(p, "neox", d.head_dim, freq_factors)

    def attention(layer: int, x: Value) -> Value:
        return causal_attention(g, d, layer, rotation, qkv(g, x, layer))

    return pre_norm_decoder(g, d, attention, with_shared_expert(g, p, normalises=False))
