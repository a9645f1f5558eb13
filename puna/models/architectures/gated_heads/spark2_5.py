"""Spark 2.5: a gate for each head; layers with a window rotate in a way of their own."""

from __future__ import annotations

from puna.graph import Tracer, Value
from puna.graph.ops import Linear
from puna.models.blocks import causal_attention, gated, pre_norm_decoder, qkv
from puna.models.decoder import Decoder
from puna.models.hyperparameters import Hyperparameters
from puna.models.rope import FreqFactors, rope
from puna.models.windows import layer_windows


def trace(g: Tracer, p: Hyperparameters, _: FreqFactors | None) -> Value:
    layers = Decoder.read_layers(p)
    windows = layer_windows(p, len(layers), period=4, size=0)
    head_dim, base = layers[0].head_dim, p.number("rope.freq_base", 10000.0)
    rotation = rope(p, "neox", head_dim, None)
    windowed = rope(p, "neox", head_dim, None, base=base, suffix="_swa")

    def attention(layer: int, x: Value) -> Value:
        return causal_attention(
            g,
            layers[layer],
            layer,
            windowed if windows[layer] else rotation,
            qkv(g, x, layer),
            window=windows[layer],
            gate=g.op(Linear(f"blk.{layer}.attn_gate"), x),
        )

    def feed_forward(layer: int, x: Value) -> Value:
        return gated(g, x, f"blk.{layer}", "gelu")

    return pre_norm_decoder(g, layers[0], attention, feed_forward)
