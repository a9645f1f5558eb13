"""Ling 2, Ring 2 and dots.llm1: normalised heads, q, k and v perhaps in one matrix."""

from __future__ import annotations

from puna.graph import Tracer, Value
from puna.models.blocks import causal_attention, fused_qkv, norm, pre_norm_decoder
from puna.models.decoder import Decoder
from puna.models.hyperparameters import Hyperparameters
from puna.models.mixtures import mixture
from puna.models.rope import FreqFactors, rope


def trace(g: Tracer, p: Hyperparameters, _: FreqFactors | None) -> Value:
    d = Decoder.read(p)
    rotation = rope(p, "neox", d.head_dim, None)

    def attention(layer: int, x: Value) -> Value:
        q, k, v = fused_qkv(g, d, x, layer)
        q, k = norm(g, d, q, f"blk.{layer}.attn_q_norm"), norm(g, d, k, f"blk.{layer}.attn_k_norm")
        return causal_attention(g, d, layer, rotation, (q, k, v))

    return pre_norm_decoder(g, d, attention, mixture(g, p, scores="softmax", normalized=False))
