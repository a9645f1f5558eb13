"""Jais: GPT-2 with a gate; scores are scaled by the size of a head, not its root."""

from __future__ import annotations

from puna.graph import Tracer, Value
from puna.models.blocks import causal_attention, fused_qkv, gated, layer_norm, pre_norm_decoder
from puna.models.decoder import Decoder
from puna.models.hyperparameters import Hyperparameters
from puna.models.rope import FreqFactors


def trace(g: Tracer, p: Hyperparameters, _: FreqFactors | None) -> Value:
    d, alibi = Decoder.read(p), p.number("attention.max_alibi_bias", 0.0)

    def attention(layer: int, x: Value) -> Value:
        q_k_v = fused_qkv(g, d, x, layer)
        return causal_attention(g, d, layer, None, q_k_v, scale=1 / d.head_dim, alibi=alibi)

    def feed_forward(layer: int, x: Value) -> Value:
        return gated(g, x, f"blk.{layer}", "silu")

    return pre_norm_decoder(g, d, attention, feed_forward, normalize=layer_norm)
