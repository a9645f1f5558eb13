"""MPT: q, k and v may be clamped; some variants have learned positions instead."""

from __future__ import annotations

from puna.graph import Tracer, Value
from puna.models.blocks import (
    causal_attention,
    fused_qkv,
    layer_norm,
    pre_norm_decoder,
    two_layers,
)
from puna.models.decoder import Decoder
from puna.models.hyperparameters import Hyperparameters
from puna.models.rope import FreqFactors

_POSITIONS = "position_embd"


def trace(g: Tracer, p: Hyperparameters, _: FreqFactors | None) -> Value:
    d = Decoder.read(p)
    alibi, limit = p.number("attention.max_alibi_bias", 0.0), p.number("attention.clamp_kqv", 0.0)

    def attention(layer: int, x: Value) -> Value:
        q_k_v = fused_qkv(g, d, x, layer, limit=limit)
        return causal_attention(g, d, layer, None, q_k_v, alibi=alibi)

    def feed_forward(layer: int, x: Value) -> Value:
        return two_layers(g, x, f"blk.{layer}", "gelu")

    positions = _POSITIONS if f"{_POSITIONS}.weight" in g.shapes else ""
    return pre_norm_decoder(g, d, attention, feed_forward, normalize=layer_norm, positions=positions)
