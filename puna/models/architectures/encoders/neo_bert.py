"""NeoBERT and EuroBERT: layers of decoders whose tokens see the whole text."""

from __future__ import annotations

from typing import Literal

from puna.graph import Tracer, Value
from puna.graph.ops import Add, Embed
from puna.models.blocks import fused_qkv, gated, gated_as_one, norm
from puna.models.decoder import Decoder
from puna.models.encoder import Pooled, encoder_attention
from puna.models.hyperparameters import Hyperparameters
from puna.models.rope import FreqFactors, rope


def trace(g: Tracer, p: Hyperparameters, freq_factors: FreqFactors | None) -> Value:
    is_neo = "enc.output_norm.weight" in g.shapes
    return two_way_decoder(g, p, "normal" if is_neo else "neox", freq_factors)


def two_way_decoder(
    g: Tracer, p: Hyperparameters, style: Literal["normal", "neox"], freq_factors: FreqFactors | None
) -> Value:
    """style: of the rotation."""
    d, pooled = Decoder.read(p), Pooled(g, p)
    is_neo = "enc.output_norm.weight" in g.shapes
    rotation = rope(p, style, d.head_dim, freq_factors)
    feed_forward = gated_as_one if is_neo else gated
    x = g.op(Embed("token_embd"))
    for layer in range(d.num_layers):
        block = f"blk.{layer}"
        q_k_v = fused_qkv(g, d, norm(g, d, x, f"{block}.attn_norm"), layer)
        y = encoder_attention(g, d, f"{block}.attn_output", rotation, q_k_v)
        if layer == d.num_layers - 1:
            x, y = pooled.ahead(x, y)
        x = g.op(Add(), x, y)
        x = g.op(Add(), x, feed_forward(g, norm(g, d, x, f"{block}.ffn_norm"), block, "silu"))
    return pooled.finish(norm(g, d, x, "enc.output_norm" if is_neo else "output_norm"))
