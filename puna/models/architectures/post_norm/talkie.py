"""Talkie: norms without weights, of heads behind their rotation; each layer reads the embeddings again."""

from __future__ import annotations

from puna.graph import Tracer, Value
from puna.graph.ops import Add, Embed, MulVector, Rows, Scale
from puna.models.blocks import causal_attention, gated, logits, qkv, unit_norm
from puna.models.decoder import Decoder
from puna.models.hyperparameters import Hyperparameters
from puna.models.rope import FreqFactors, rope


def trace(g: Tracer, p: Hyperparameters, _: FreqFactors | None) -> Value:
    d = Decoder.read(p)
    rotation = rope(p, "neox", d.head_dim, None)
    x = embedding = unit_norm(g, d, g.op(Embed("token_embd")))
    for layer in range(d.num_layers):
        block = f"blk.{layer}"
        q, k, v = qkv(g, unit_norm(g, d, x), layer)
        q, k = (unit_norm(g, d, g.op(rotation, y), size=d.head_dim) for y in (q, k))
        q = g.op(MulVector(f"{block}.attn_q_norm.weight"), q)
        x = g.op(Add(), x, causal_attention(g, d, layer, None, (q, k, v)))
        if layer == d.num_layers - 1:
            x, embedding = g.op(Rows(), x), g.op(Rows(), embedding)
        x = g.op(Add(), x, gated(g, unit_norm(g, d, x), block, "silu"))
        x = g.op(Add(), x, g.op(MulVector(f"{block}.layer_output_scale.weight"), embedding))
    return g.op(Scale(p.number("logit_scale")), logits(g, unit_norm(g, d, x)))
