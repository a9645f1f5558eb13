"""OLMo 1: norms without weights; q, k and v may be clamped."""

from __future__ import annotations

from puna.graph import Tracer, Value
from puna.graph.ops import Standardize
from puna.models.blocks import causal_attention, fused_qkv, pre_norm_decoder
from puna.models.decoder import Decoder, Stack
from puna.models.hyperparameters import Hyperparameters
from puna.models.rope import FreqFactors, rope


def trace(g: Tracer, p: Hyperparameters, _: FreqFactors | None) -> Value:
    d, limit = Decoder.read(p), p.number("attention.clamp_kqv", 0.0)
    rotation = rope(p, "normal", d.head_dim, None)

    def attention(layer: int, x: Value) -> Value:
        return causal_attention(g, d, layer, rotation, fused_qkv(g, d, x, layer, limit=limit))

    return pre_norm_decoder(g, d, attention, normalize=_standardized)


def _standardized(g: Tracer, d: Stack, x: Value, _: str) -> Value:
    return g.op(Standardize(d.norm_eps), x)
