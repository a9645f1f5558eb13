"""Baichuan 1 and 2: the 7B rotates as Llama does, the 13B, of 40 layers, does not."""

from __future__ import annotations

from puna.graph import Tracer, Value
from puna.models.blocks import causal_attention, fused_qkv, pre_norm_decoder
from puna.models.decoder import Decoder
from puna.models.hyperparameters import Hyperparameters
from puna.models.rope import FreqFactors, rope

_LAYERS_OF_13B = 40


def trace(g: Tracer, p: Hyperparameters, _: FreqFactors | None) -> Value:
    d = Decoder.read(p)
    falls = d.num_layers == _LAYERS_OF_13B
    rotation, alibi = (None, 8.0) if falls else (rope(p, "normal", d.head_dim, None), 0.0)

    def attention(layer: int, x: Value) -> Value:
        return causal_attention(g, d, layer, rotation, fused_qkv(g, d, x, layer), alibi=alibi)

    return pre_norm_decoder(g, d, attention)
