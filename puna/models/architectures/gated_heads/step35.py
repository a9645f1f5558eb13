"""Step 3.5: gated heads, of numbers that differ, and experts; layers without a window rotate less."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from puna.graph import Tracer, Value
from puna.graph.ops import Add, Linear
from puna.models.blocks import causal_attention, experts, gated, norm, pre_norm_decoder, qkv
from puna.models.decoder import Decoder
from puna.models.hyperparameters import Hyperparameters
from puna.models.mixtures import limits, moe
from puna.models.rope import FreqFactors, rope, unscaled_rope
from puna.models.windows import layer_windows


def trace(g: Tracer, p: Hyperparameters, freq_factors: FreqFactors | None) -> Value:
    layers = Decoder.read_layers(p)
    num_blocks, head_dim = layers[0].num_blocks, layers[0].head_dim
    windows = layer_windows(p, num_blocks, period=4, size=0)
    windowed = unscaled_rope(p, "neox", head_dim, p.number("rope.freq_base_swa", 10000.0), suffix="_swa")
    most_factors = len(windowed.inv_freq) if any(windows) else 0

    def first_factors(count: int) -> NDArray[np.float32]:
        """The file has as many as the layers that rotate most need."""
        assert freq_factors is not None
        return freq_factors(max(most_factors, count))[:count]

    rotation = rope(p, "neox", head_dim, first_factors if freq_factors else None, share=2)
    of_experts, of_shared = (limits(p, f"swiglu_clamp_{kind}", num_blocks) for kind in ("exp", "shexp"))

    def attention(layer: int, x: Value) -> Value:
        d, block = layers[layer], f"blk.{layer}"
        q, k, v = qkv(g, x, layer)
        if f"{block}.attn_q_norm.weight" in g.shapes:
            q, k = norm(g, d, q, f"{block}.attn_q_norm"), norm(g, d, k, f"{block}.attn_k_norm")
        has_gate = f"{block}.attn_gate.weight" in g.shapes
        return causal_attention(
            g,
            d,
            layer,
            windowed if windows[layer] else rotation,
            (q, k, v),
            window=windows[layer],
            gate=g.op(Linear(f"{block}.attn_gate"), x) if has_gate else None,
        )

    def limited(layer: int, x: Value, suffix: str) -> Value:
        limit = of_shared[layer]
        activation = "silu_limited" if limit else "silu"
        return gated(g, x, f"blk.{layer}", activation, suffix=suffix, limit=limit)

    def feed_forward(layer: int, x: Value) -> Value:
        block, limit = f"blk.{layer}", of_experts[layer]
        if f"{block}.ffn_gate_inp.weight" not in g.shapes:
            return limited(layer, x, "")
        of_layer = moe(p, block, scores="sigmoid", normalized=False)
        if limit:
            of_layer = replace(of_layer, activation="silu_limited", limit=limit)
        return g.op(Add(), experts(g, x, of_layer), limited(layer, x, "_shexp"))

    return pre_norm_decoder(g, layers[0], attention, feed_forward)
