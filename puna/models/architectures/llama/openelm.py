"""OpenELM: normalised heads, of which each layer has a number of its own."""

from __future__ import annotations

from puna.graph import Tracer, Value
from puna.models.blocks import causal_attention, fused_qkv, norm, pre_norm_decoder
from puna.models.decoder import Decoder
from puna.models.hyperparameters import Hyperparameters
from puna.models.rope import FreqFactors, rope


def trace(g: Tracer, p: Hyperparameters, _: FreqFactors | None) -> Value:
    layers = Decoder.read_layers(p)
    rotation = rope(p, "neox", layers[0].head_dim, None)

    def attention(layer: int, x: Value) -> Value:
        d, block = layers[layer], f"blk.{layer}"
        q, k, v = fused_qkv(g, d, x, layer)
        q, k = norm(g, d, q, f"{block}.attn_q_norm"), norm(g, d, k, f"{block}.attn_k_norm")
        return causal_attention(g, d, layer, rotation, (q, k, v))

    return pre_norm_decoder(g, layers[0], attention)
