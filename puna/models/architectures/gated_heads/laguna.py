"""Laguna: gated heads, of numbers that differ; layers with a window rotate in a way of their own."""

from __future__ import annotations

from puna.graph import Tracer, Value
from puna.graph.ops import Linear
from puna.models.blocks import causal_attention, normed_qkv, pre_norm_decoder
from puna.models.decoder import Decoder
from puna.models.hyperparameters import Hyperparameters
from puna.models.mixtures import mixture
from puna.models.rope import FreqFactors, rope, unscaled_rope
from puna.models.windows import layer_windows


def trace(g: Tracer, p: Hyperparameters, _: FreqFactors | None) -> Value:
    layers = Decoder.read_layers(p)
    windows = layer_windows(p, len(layers), period=4, size=0, full_first=True)
    head_dim, base = layers[0].head_dim, p.number("rope.freq_base", 10000.0)
    rotation = rope(p, "neox", head_dim, None)
    windowed = unscaled_rope(p, "neox", head_dim, p.number("rope.freq_base_swa", base), suffix="_swa")

    def attention(layer: int, x: Value) -> Value:
        d = layers[layer]
        return causal_attention(
            g,
            d,
            layer,
            windowed if windows[layer] else rotation,
            normed_qkv(g, d, x, layer),
            window=windows[layer],
            gate=g.op(Linear(f"blk.{layer}.attn_gate"), x),
            gate_function="softplus",
        )

    feed_forward = mixture(g, p, scores="sigmoid", normalized=False)
    return pre_norm_decoder(g, layers[0], attention, feed_forward)
