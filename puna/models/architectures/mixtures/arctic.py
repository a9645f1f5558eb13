"""Snowflake Arctic: experts beside all of a layer, which read what comes into it."""

from __future__ import annotations

from puna.graph import Tracer, Value
from puna.graph.ops import Add, Embed, Rows
from puna.models.blocks import causal_attention, experts, fused_qkv, gated, logits, norm
from puna.models.decoder import Decoder
from puna.models.hyperparameters import Hyperparameters
from puna.models.mixtures import moe
from puna.models.rope import FreqFactors, rope


def trace(g: Tracer, p: Hyperparameters, _: FreqFactors | None) -> Value:
    d = Decoder.read(p)
    rotation = rope(p, "normal", d.head_dim, None)
    x = g.op(Embed("token_embd"))
    for layer in range(d.num_layers):
        block = f"blk.{layer}"
        q_k_v = fused_qkv(g, d, norm(g, d, x, f"{block}.attn_norm"), layer)
        y = g.op(Add(), x, causal_attention(g, d, layer, rotation, q_k_v))
        if layer == d.num_layers - 1:
            x, y = g.op(Rows(), x), g.op(Rows(), y)
        y = g.op(Add(), y, gated(g, norm(g, d, y, f"{block}.ffn_norm"), block, "silu"))
        mixed = moe(p, block, scores="softmax", normalized=True)
        x = g.op(Add(), y, experts(g, norm(g, d, x, f"{block}.ffn_norm_exps"), mixed))
    return logits(g, norm(g, d, x, "output_norm"))
