"""Qwen3 with experts in every layer."""

from __future__ import annotations

from puna.graph import Tracer, Value
from puna.graph.ops import Moe
from puna.models.blocks import causal_attention, experts, normed_qkv, pre_norm_decoder
from puna.models.decoder import Decoder
from puna.models.hyperparameters import Hyperparameters
from puna.models.rope import FreqFactors, rope


def trace(g: Tracer, p: Hyperparameters, freq_factors: FreqFactors | None) -> Value:
    d = Decoder.read(p)
    rotation = rope(p, "neox", d.head_dim, freq_factors)
    num_used = p.integer("expert_used_count")

    def attention(layer: int, x: Value) -> Value:
        return causal_attention(g, d, layer, rotation, normed_qkv(g, d, x, layer))

    def feed_forward(layer: int, x: Value) -> Value:
        return experts(g, x, Moe(f"blk.{layer}", num_used, "softmax", True, 1.0, "silu"))

    return pre_norm_decoder(g, d, attention, feed_forward)
