"""Apertus: normalised heads, and a feed-forward part with xIELU instead of a gate."""

from __future__ import annotations

import math

from puna.graph import Tracer, Value
from puna.graph.ops import Linear, Xielu
from puna.models.blocks import causal_attention, normed_qkv, pre_norm_decoder
from puna.models.decoder import Decoder
from puna.models.hyperparameters import Hyperparameters
from puna.models.rope import FreqFactors, rope


def trace(g: Tracer, p: Hyperparameters, freq_factors: FreqFactors | None) -> Value:
    d = Decoder.read(p)
    rotation, activations = rope(p, "neox", d.head_dim, freq_factors), _activations(p, d)
    scale = p.number("attention.scale", 0.0) or None

    def attention(layer: int, x: Value) -> Value:
        return causal_attention(g, d, layer, rotation, normed_qkv(g, d, x, layer), scale=scale)

    def feed_forward(layer: int, x: Value) -> Value:
        y = g.op(activations[layer], g.op(Linear(f"blk.{layer}.ffn_up"), x))
        return g.op(Linear(f"blk.{layer}.ffn_down"), y)

    return pre_norm_decoder(g, d, attention, feed_forward)


def _activations(p: Hyperparameters, d: Decoder) -> list[Xielu]:
    """Of each layer; the file has both alphas from before softplus keeps them positive."""
    names = ("xielu.alpha_p", "xielu.alpha_n", "xielu.beta", "xielu.eps")
    values = [p.common_numbers(name, d.num_layers) for name in names]
    return [
        Xielu(_softplus(positive), beta + _softplus(negative), beta, eps)
        for positive, negative, beta, eps in zip(*values, strict=True)
    ]


def _softplus(x: float) -> float:
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))
