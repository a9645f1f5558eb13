"""Hunyuan, dense or with experts: each head's q and k are normalised after they are rotated."""

from __future__ import annotations

from puna.graph import Tracer, Value
from puna.models.blocks import causal_attention, norm, pre_norm_decoder, qkv
from puna.models.decoder import Decoder
from puna.models.hyperparameters import HyperparameterError, Hyperparameters
from puna.models.mixtures import mixture
from puna.models.rope import FreqFactors, rope


def trace(g: Tracer, p: Hyperparameters, freq_factors: FreqFactors | None) -> Value:
    if p.number("rope.scaling.alpha", 0.0):
        raise HyperparameterError(f"metadata {p.key('rope.scaling.alpha')} is not supported")
    d = Decoder.read(p)
    rotation = rope(p, "neox", d.head_dim, freq_factors)

    def attention(layer: int, x: Value) -> Value:
        q, k, v = qkv(g, x, layer)
        q = norm(g, d, g.op(rotation, q), f"blk.{layer}.attn_q_norm")
        k = norm(g, d, g.op(rotation, k), f"blk.{layer}.attn_k_norm")
        return causal_attention(g, d, layer, None, (q, k, v))

    return pre_norm_decoder(g, d, attention, mixture(g, p, scores="softmax", normalized=True))
