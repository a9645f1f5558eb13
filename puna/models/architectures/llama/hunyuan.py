"""Hunyuan, dense or with experts: each head's q and k are normalised after they are rotated."""

from __future__ import annotations

import dataclasses

import numpy as np

from puna.graph import Tracer, Value
from puna.graph.ops import Rope
from puna.models.blocks import causal_attention, norm, pre_norm_decoder, qkv
from puna.models.decoder import Decoder
from puna.models.hyperparameters import Hyperparameters
from puna.models.mixtures import mixture
from puna.models.rope import FreqFactors, rope


def trace(g: Tracer, p: Hyperparameters, freq_factors: FreqFactors | None) -> Value:
    d = Decoder.read(p)
    rotation = _stretched(p, rope(p, "neox", d.head_dim, freq_factors))

    def attention(layer: int, x: Value) -> Value:
        q, k, v = qkv(g, x, layer)
        q = norm(g, d, g.op(rotation, q), f"blk.{layer}.attn_q_norm")
        k = norm(g, d, g.op(rotation, k), f"blk.{layer}.attn_k_norm")
        return causal_attention(g, d, layer, None, (q, k, v))

    return pre_norm_decoder(g, d, attention, mixture(g, p, scores="softmax", normalized=True))


def _stretched(p: Hyperparameters, rotation: Rope) -> Rope:
    """With alpha^(dim / (dim - 2)) times the base, which contexts are stretched by (NTK-aware scaling)."""
    alpha, dim = p.number("rope.scaling.alpha", 0.0), rotation.head_dim
    if alpha <= 0 or dim <= 2:
        return rotation
    powers = np.arange(rotation.inv_freq.size) * (-2.0 / (dim - 2))
    inv_freq = rotation.inv_freq * np.float32(alpha) ** powers
    return dataclasses.replace(rotation, inv_freq=inv_freq.astype(np.float32))
