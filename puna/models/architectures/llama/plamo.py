"""PLaMo 1: both halves of a layer read the same norm."""

from __future__ import annotations

from puna.graph import Tracer, Value
from puna.models.blocks import causal_attention, fused_qkv, gated, norm, parallel_decoder
from puna.models.decoder import Decoder
from puna.models.hyperparameters import Hyperparameters
from puna.models.rope import FreqFactors, rope


def trace(g: Tracer, p: Hyperparameters, _: FreqFactors | None) -> Value:
    d = Decoder.read(p)
    rotation = rope(p, "neox", d.head_dim, None)

    def attention(layer: int, x: Value) -> Value:
        return causal_attention(g, d, layer, rotation, fused_qkv(g, d, x, layer))

    def feed_forward(layer: int, x: Value) -> Value:
        return gated(g, x, f"blk.{layer}", "silu")

    return parallel_decoder(
        g, d, attention, feed_forward, mixer_norm="attn_norm", ffn_norm="attn_norm", normalize=norm
    )
