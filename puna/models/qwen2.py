"""Qwen2 and Qwen2.5: q, k and v have biases, rotation is in NeoX order."""

from __future__ import annotations

from puna.graph import Tracer, Value
from puna.models.blocks import causal_attention, pre_norm_decoder, rotated
from puna.models.decoder import Decoder
from puna.models.hyperparameters import Hyperparameters
from puna.models.rope import FreqFactors, rope_config


def trace(g: Tracer, p: Hyperparameters, freq_factors: FreqFactors | None) -> Value:
    d = Decoder.read(p)
    rope = rope_config(p, "neox", d.head_dim, freq_factors)

    def attention(layer: int, x: Value) -> Value:
        block = f"blk.{layer}"
        q, k, v = (g.linear(x, f"{block}.attn_{part}") for part in "qkv")
        q, k = rotated(g, d, rope, q, k)
        return causal_attention(g, d, layer, q, k, v)

    return pre_norm_decoder(g, d, attention)
