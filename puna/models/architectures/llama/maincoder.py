"""Maincoder: q and k are normalised after they are rotated."""

from __future__ import annotations

from puna.graph import Tracer, Value
from puna.models.blocks import causal_attention, fused_qkv, norm, pre_norm_decoder
from puna.models.decoder import Decoder
from puna.models.hyperparameters import Hyperparameters
from puna.models.rope import FreqFactors, rope


def trace(g: Tracer, p: Hyperparameters, _: FreqFactors | None) -> Value:
    d = Decoder.read(p)
    rotation = rope(p, "normal", d.head_dim, None)

    def attention(layer: int, x: Value) -> Value:
        q, k, v = fused_qkv(g, d, x, layer)
        q = norm(g, d, g.op(rotation, q), f"blk.{layer}.attn_q_norm")
        k = norm(g, d, g.op(rotation, k), f"blk.{layer}.attn_k_norm")
        return causal_attention(g, d, layer, None, (q, k, v))

    return pre_norm_decoder(g, d, attention)
