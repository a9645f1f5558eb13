"""DBRX: norms that take away the mean; q, k and v are clamped."""

from __future__ import annotations

from puna.graph import Tracer, Value
from puna.models.blocks import causal_attention, fused_qkv, layer_norm, pre_norm_decoder
from puna.models.decoder import Decoder
from puna.models.hyperparameters import Hyperparameters
from puna.models.mixtures import mixture
from puna.models.rope import FreqFactors, rope


def trace(g: Tracer, p: Hyperparameters, _: FreqFactors | None) -> Value:
    d, limit = Decoder.read(p), p.number("attention.clamp_kqv")
    rotation = rope(p, "neox", d.head_dim, None)

    def attention(layer: int, x: Value) -> Value:
        return causal_attention(g, d, layer, rotation, fused_qkv(g, d, x, layer, limit=limit))

    feed_forward = mixture(g, p, scores="softmax", normalized=True)
    return pre_norm_decoder(g, d, attention, feed_forward, normalize=layer_norm, ffn_norm="attn_output_norm")
