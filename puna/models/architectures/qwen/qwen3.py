"""Qwen3: each head's q and k are normalised before they are rotated, in NeoX order."""

from __future__ import annotations

from puna.graph import Tracer, Value
from puna.models.blocks import causal_attention, normed_qkv, pre_norm_decoder, ranked
from puna.models.decoder import Decoder
from puna.models.encoder import pooling_of
from puna.models.hyperparameters import Hyperparameters
from puna.models.rope import FreqFactors, rope


def trace(g: Tracer, p: Hyperparameters, freq_factors: FreqFactors | None) -> Value:
    d = Decoder.read(p)
    rotation = rope(p, "neox", d.head_dim, freq_factors)

    def attention(layer: int, x: Value) -> Value:
        return causal_attention(g, d, layer, rotation, normed_qkv(g, d, x, layer))

    return ranked(g, pre_norm_decoder(g, d, attention), pooling_of(p))
