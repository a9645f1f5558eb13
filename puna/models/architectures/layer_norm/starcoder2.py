"""StarCoder 2, CodeShell: norms that take away the mean, feed-forward parts of two layers, many biases."""

from __future__ import annotations

from puna.graph import Tracer, Value
from puna.models.blocks import causal_attention, fused_qkv, layer_norm, pre_norm_decoder, two_layers
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

    return pre_norm_decoder(g, d, attention, feed_forward, normalize=layer_norm)
