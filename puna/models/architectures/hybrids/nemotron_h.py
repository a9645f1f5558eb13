"""Nemotron-H and Nemotron 3: each layer is Mamba-2, attention without rotation, or a feed-forward part."""

from __future__ import annotations

from dataclasses import replace

from puna.graph import Tracer, Value
from puna.graph.ops import Add, Embed, Linear, Rows
from puna.models.blocks import causal_attention, fused_qkv, logits, norm, two_layers
from puna.models.decoder import Decoder
from puna.models.hyperparameters import Hyperparameters
from puna.models.mixtures import moe
from puna.models.recurrent.selective_scan import Mamba2, mamba2
from puna.models.rope import FreqFactors


def trace(g: Tracer, p: Hyperparameters, _: FreqFactors | None) -> Value:
    d, sizes = Decoder.read(p), Mamba2.read(p)
    ffn = p.integers("feed_forward_length", d.num_blocks, maximum=1 << 24)
    scale = p.number("attention.scale", 0.0) or None
    x = g.op(Embed("token_embd"))
    for layer in range(d.num_layers):
        if ffn[layer] and layer == d.num_layers - 1:
            x = g.op(Rows(), x)
        y = norm(g, d, x, f"blk.{layer}.attn_norm")
        if ffn[layer]:
            y = _feed_forward(g, p, d, layer, y)
        elif d.has_attention[layer]:
            y = causal_attention(g, d, layer, None, fused_qkv(g, d, y, layer), scale=scale)
        else:
            y = mamba2(g, d, sizes, layer, y)
        x = g.op(Add(), x, y)
    if not ffn[d.num_layers - 1]:
        x = g.op(Rows(), x)
    return logits(g, norm(g, d, x, "output_norm"))


def _feed_forward(g: Tracer, p: Hyperparameters, d: Decoder, layer: int, x: Value) -> Value:
    """With experts, which may work on fewer columns, one that all tokens share."""
    block = f"blk.{layer}"
    if f"{block}.ffn_gate_inp.weight" not in g.shapes:
        return two_layers(g, x, block, "relu_squared")
    used = p.integers("expert_used_count", d.num_blocks, maximum=1 << 16)[layer]
    mixed = moe(p, block, num_used=used, scores="sigmoid", normalized=False)
    mixed = replace(mixed, activation="relu_squared", gated=False)
    chosen = g.op(Linear(f"{block}.ffn_gate_inp"), x)
    narrows = f"{block}.ffn_latent_down.weight" in g.shapes
    y = g.op(mixed, g.op(Linear(f"{block}.ffn_latent_down"), x) if narrows else x, chosen)
    if narrows:
        y = g.op(Linear(f"{block}.ffn_latent_up"), y)
    return g.op(Add(), y, two_layers(g, x, block, "relu_squared", suffix="_shexp"))
