"""ChatGLM 2 and 3, GLM-4 9B: q, k and v in one matrix, gate and up in another; half of each head rotates."""

from __future__ import annotations

from puna.graph import Tracer, Value
from puna.models.blocks import causal_attention, fused_qkv, gated_as_one, pre_norm_decoder
from puna.models.decoder import Decoder
from puna.models.hyperparameters import Hyperparameters
from puna.models.rope import FreqFactors, rope


def trace(g: Tracer, p: Hyperparameters, freq_factors: FreqFactors | None) -> Value:
    d = Decoder.read(p)
    rotation = rope(p, "normal", d.head_dim, freq_factors)

    def attention(layer: int, x: Value) -> Value:
        return causal_attention(g, d, layer, rotation, fused_qkv(g, d, x, layer))

    def feed_forward(layer: int, x: Value) -> Value:
        return gated_as_one(g, x, f"blk.{layer}", "silu")

    return pre_norm_decoder(g, d, attention, feed_forward)
