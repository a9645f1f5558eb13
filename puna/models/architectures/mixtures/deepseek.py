"""DeepSeek 1 and Ling 1: Llama with experts whose shares need not become 1 together."""

from __future__ import annotations

from puna.graph import Tracer, Value
from puna.models.blocks import causal_attention, pre_norm_decoder, qkv
from puna.models.decoder import Decoder
from puna.models.hyperparameters import Hyperparameters
from puna.models.mixtures import mixture
from puna.models.rope import FreqFactors, rope


def trace(g: Tracer, p: Hyperparameters, freq_factors: FreqFactors | None) -> Value:
    d = Decoder.read(p)
    rotation = rope(p, "normal", d.head_dim, freq_factors)

    def attention(layer: int, x: Value) -> Value:
        return causal_attention(g, d, layer, rotation, qkv(g, x, layer))

    return pre_norm_decoder(g, d, attention, mixture(g, p, scores="softmax", normalized=False))
