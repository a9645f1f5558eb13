"""BLOOM: norms that take away the mean, also of the tokens' embeddings; biases everywhere."""

from __future__ import annotations

from puna.graph import Tracer, Value
from puna.models.blocks import causal_attention, fused_qkv, layer_norm, pre_norm_decoder, two_layers
from puna.models.decoder import Decoder
from puna.models.hyperparameters import Hyperparameters
from puna.models.rope import FreqFactors


def trace(g: Tracer, p: Hyperparameters, _: FreqFactors | None) -> Value:
    d = Decoder.read(p)

    def attention(layer: int, x: Value) -> Value:
        return causal_attention(g, d, layer, None, fused_qkv(g, d, x, layer), alibi=8.0)

    def feed_forward(layer: int, x: Value) -> Value:
        return two_layers(g, x, f"blk.{layer}", "gelu")

    return pre_norm_decoder(
        g, d, attention, feed_forward, normalize=layer_norm, embedding_norm="token_embd_norm"
    )
