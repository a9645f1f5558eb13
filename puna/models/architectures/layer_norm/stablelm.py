"""StableLM: norms that take away the mean; in the 12B both halves of a layer read the same one."""

from __future__ import annotations

from puna.graph import Tracer, Value
from puna.models.blocks import (
    causal_attention,
    gated,
    layer_norm,
    layer_normed_qkv,
    parallel_decoder,
    pre_norm_decoder,
)
from puna.models.decoder import Decoder
from puna.models.hyperparameters import Hyperparameters
from puna.models.rope import FreqFactors, rope


def trace(g: Tracer, p: Hyperparameters, freq_factors: FreqFactors | None) -> Value:
    d = Decoder.read(p)
    rotation = rope(p, "neox", d.head_dim, freq_factors)

    def attention(layer: int, x: Value) -> Value:
        return causal_attention(g, d, layer, rotation, layer_normed_qkv(g, d, x, layer))

    def feed_forward(layer: int, x: Value) -> Value:
        return gated(g, x, f"blk.{layer}", "silu")

    if "blk.0.ffn_norm.weight" in g.shapes:
        return pre_norm_decoder(g, d, attention, feed_forward, normalize=layer_norm)
    return parallel_decoder(g, d, attention, feed_forward, mixer_norm="attn_norm", ffn_norm="attn_norm")
