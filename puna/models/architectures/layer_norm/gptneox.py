"""GPT-NeoX and Pythia: the halves of a layer side by side, each with its norm, or one behind the other."""

from __future__ import annotations

from puna.graph import Tracer, Value
from puna.models.blocks import (
    causal_attention,
    fused_qkv,
    layer_norm,
    parallel_decoder,
    pre_norm_decoder,
    two_layers,
)
from puna.models.decoder import Decoder
from puna.models.hyperparameters import Hyperparameters
from puna.models.rope import FreqFactors, rope


def trace(g: Tracer, p: Hyperparameters, freq_factors: FreqFactors | None) -> Value:
    d = Decoder.read(p)
    rotation = rope(p, "neox", d.head_dim, freq_factors)

    def attention(layer: int, x: Value) -> Value:
        return causal_attention(g, d, layer, rotation, fused_qkv(g, d, x, layer))

    def feed_forward(layer: int, x: Value) -> Value:
        return two_layers(g, x, f"blk.{layer}", "gelu")

    if p.flag("use_parallel_residual", True):
        return parallel_decoder(g, d, attention, feed_forward, mixer_norm="attn_norm", ffn_norm="ffn_norm")
    return pre_norm_decoder(g, d, attention, feed_forward, normalize=layer_norm)
