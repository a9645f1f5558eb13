"""Falcon and Phi-2: both halves of a layer read the same norm; in Falcon 40B attention has one of its own."""

from __future__ import annotations

from puna.graph import Tracer, Value
from puna.models.blocks import causal_attention, fused_qkv, parallel_decoder, two_layers
from puna.models.decoder import Decoder
from puna.models.hyperparameters import Hyperparameters
from puna.models.rope import FreqFactors, rope


def trace(g: Tracer, p: Hyperparameters, freq_factors: FreqFactors | None) -> Value:
    d = Decoder.read(p)
    rotation = rope(p, "neox", d.head_dim, freq_factors)

    def attention(layer: int, x: Value) -> Value:
        return causal_attention(g, d, layer, rotation, fused_qkv(g, d, x, layer))

    def feed_forward(layer: int, x: Value) -> Value:
        return two_layers(g, x, f"blk.{layer}", "gelu")

    mixer_norm = "attn_norm_2" if "blk.0.attn_norm_2.weight" in g.shapes else "attn_norm"
    return parallel_decoder(g, d, attention, feed_forward, mixer_norm=mixer_norm, ffn_norm="attn_norm")
