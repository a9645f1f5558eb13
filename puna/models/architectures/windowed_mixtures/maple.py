"""Maple: normalised heads, experts whose gates have limits; only layers with a window rotate."""

from __future__ import annotations

from dataclasses import replace

from puna.graph import Tracer, Value
from puna.models.blocks import causal_attention, experts, normed_qkv, pre_norm_decoder
from puna.models.decoder import Decoder
from puna.models.hyperparameters import Hyperparameters
from puna.models.mixtures import limits, moe
from puna.models.rope import FreqFactors, rope
from puna.models.windows import layer_windows


def trace(g: Tracer, p: Hyperparameters, _: FreqFactors | None) -> Value:
    d = Decoder.read(p)
    windows = layer_windows(p, d.num_layers, period=4, size=0)
    base = p.number("rope.freq_base", 10000.0)
    rotation = rope(p, "neox", d.head_dim, None, base=base, suffix="_swa")
    of_experts = limits(p, "swiglu_clamp_exp", d.num_blocks)

    def attention(layer: int, x: Value) -> Value:
        window = windows[layer]
        turn = rotation if window else None
        return causal_attention(g, d, layer, turn, normed_qkv(g, d, x, layer), window=window)

    def feed_forward(layer: int, x: Value) -> Value:
        of_layer = moe(p, f"blk.{layer}", scores="softmax", normalized=True)
        if limit := of_experts[layer]:
            of_layer = replace(of_layer, activation="limited_silu", limit=limit)
        return experts(g, x, of_layer)

    return pre_norm_decoder(g, d, attention, feed_forward)
