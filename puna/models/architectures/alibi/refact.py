"""Refact: Llama without rotation."""

from __future__ import annotations

from puna.graph import Tracer, Value
from puna.models.blocks import causal_attention, fused_qkv, pre_norm_decoder
from puna.models.decoder import Decoder
from puna.models.hyperparameters import Hyperparameters
from puna.models.rope import FreqFactors


def trace(g: Tracer, p: Hyperparameters, _: FreqFactors | None) -> Value:
    d = Decoder.read(p)

    def attention(layer: int, x: Value) -> Value:
        return causal_attention(g, d, layer, None, fused_qkv(g, d, x, layer), alibi=8.0)

    return pre_norm_decoder(g, d, attention)
