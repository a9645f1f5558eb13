"""Falcon-H1: attention and Mamba-2 side by side in each layer."""

from __future__ import annotations

from puna.graph import Tracer, Value
from puna.graph.ops import Add, Embed
from puna.models.blocks import bare_norm, causal_attention, fused_qkv, gated, logits, norm, stacked
from puna.models.decoder import Decoder
from puna.models.hyperparameters import Hyperparameters
from puna.models.recurrent.selective_scan import Mamba2, mamba2
from puna.models.rope import FreqFactors, rope


def trace(g: Tracer, p: Hyperparameters, freq_factors: FreqFactors | None) -> Value:
    d, sizes = Decoder.read(p), Mamba2.read(p)
    rotation = rope(p, "neox", d.head_dim, freq_factors)
    scale = p.number("attention.scale", 0.0) or None

    def mix(layer: int, x: Value) -> Value:
        x = norm(g, d, x, f"blk.{layer}.attn_norm")
        y = causal_attention(g, d, layer, rotation, fused_qkv(g, d, x, layer), scale=scale)
        return g.op(Add(), y, mamba2(g, d, sizes, layer, x))

    def feed(layer: int, x: Value) -> Value:
        return gated(g, bare_norm(g, d, x, f"blk.{layer}.ffn_norm"), f"blk.{layer}", "silu")

    x = stacked(g, d, g.op(Embed("token_embd")), mix, feed)
    return logits(g, norm(g, d, x, "output_norm"))
