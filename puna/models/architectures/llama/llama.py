"""Llama (1-3), Mistral, Mixtral, SmolLM2 and others that GGUF files call "llama"."""

from __future__ import annotations

from puna.graph import GraphError, Tracer, Value
from puna.models.blocks import causal_attention, pre_norm_decoder, qkv
from puna.models.decoder import Decoder
from puna.models.hyperparameters import Hyperparameters
from puna.models.mixtures import mixture
from puna.models.rope import FreqFactors, rope

_OWN_TENSOR = "blk.0.ffn_gate.0.weight"


def trace(g: Tracer, p: Hyperparameters, freq_factors: FreqFactors | None) -> Value:
    d = Decoder.read(p)
    rotation = rope(p, "normal", d.head_dim, freq_factors)

    def attention(layer: int, x: Value) -> Value:
        return causal_attention(g, d, layer, rotation, qkv(g, x, layer))

    if _OWN_TENSOR in g.shapes:
        raise GraphError(
            f"tensor {_OWN_TENSOR}: experts in tensors of their own, as files had them before 2024"
        )
    return pre_norm_decoder(g, d, attention, mixture(g, p, scores="softmax", normalized=True))
