"""Llama-Nemotron (Deci): layers of Llama whose heads differ, with a product for attention, or less."""

from __future__ import annotations

from puna.graph import Tracer, Value
from puna.graph.ops import Add, Embed, Linear, Rows
from puna.models.blocks import causal_attention, fused_qkv, gated, logits, norm
from puna.models.decoder import Decoder, Stack
from puna.models.hyperparameters import Hyperparameters
from puna.models.rope import FreqFactors, rope


def trace(g: Tracer, p: Hyperparameters, freq_factors: FreqFactors | None) -> Value:
    stack, layers = Stack.read(p), Decoder.read_layers(p)
    ffn = p.integers("feed_forward_length", stack.num_blocks, maximum=1 << 24)
    rotation = rope(p, "normal", layers[0].head_dim, freq_factors)
    scale = p.number("attention.scale", 0.0) or None
    x = g.op(Embed("token_embd"))
    for layer, d in enumerate(layers):
        block = f"blk.{layer}"
        if d.num_heads:
            y = norm(g, d, x, f"{block}.attn_norm")
            if d.num_kv_heads:
                y = causal_attention(g, d, layer, rotation, fused_qkv(g, d, y, layer), scale=scale)
            else:
                y = g.op(Linear(f"{block}.attn_output"), y)
            x = g.op(Add(), x, y)
        if layer == stack.num_layers - 1:
            x = g.op(Rows(), x)
        if ffn[layer]:
            x = g.op(Add(), x, gated(g, norm(g, d, x, f"{block}.ffn_norm"), block, "silu"))
    return logits(g, norm(g, stack, x, "output_norm"))
