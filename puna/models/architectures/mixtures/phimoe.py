"""Phi-3.5 MoE: norms with biases; long contexts by factors of frequencies."""

from __future__ import annotations

from puna.graph import Tracer, Value
from puna.models.blocks import biased_norm, causal_attention, fused_qkv, pre_norm_decoder
from puna.models.decoder import Decoder
from puna.models.hyperparameters import Hyperparameters
from puna.models.mixtures import mixture
from puna.models.rope import FreqFactors, rope


def trace(g: Tracer, p: Hyperparameters, freq_factors: FreqFactors | None) -> Value:
    d = Decoder.read(p)
    rotation = rope(p, "neox", d.head_dim, freq_factors)

    def attention(layer: int, x: Value) -> Value:
        return causal_attention(g, d, layer, rotation, fused_qkv(g, d, x, layer))

    feed_forward = mixture(g, p, scores="softmax", normalized=True)
    return pre_norm_decoder(g, d, attention, feed_forward, normalize=biased_norm)
