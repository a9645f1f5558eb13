"""Llama (1-3), Mistral, SmolLM2 and others that GGUF files call "llama"."""

from __future__ import annotations

from puna.graph import Tracer, Value
from puna.models.blocks import causal_attention, pre_norm_decoder, qkv
from puna.models.decoder import Decoder
from puna.models.hyperparameters import HyperparameterError, Hyperparameters
from puna.models.rope import FreqFactors, rope


def trace(g: Tracer, p: Hyperparameters, freq_factors: FreqFactors | None) -> Value:
    if p.has("expert_count") and p.integer("expert_count") > 1:
        raise HyperparameterError("mixture-of-experts models are not supported")
    d = Decoder.read(p)
    rotation = rope(p, "normal", d.head_dim, freq_factors)

    def attention(layer: int, x: Value) -> Value:
        return causal_attention(g, d, layer, rotation, qkv(g, x, layer))

    return pre_norm_decoder(g, d, attention)
