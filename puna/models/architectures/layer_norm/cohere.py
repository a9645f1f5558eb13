"""Command R and R7B: both halves of a layer read the same norm; layers with windows rotate, others do not."""

from __future__ import annotations

from puna.graph import Tracer, Value
from puna.graph.ops import Scale
from puna.models.blocks import causal_attention, gated, layer_normed_qkv, parallel_decoder
from puna.models.decoder import Decoder
from puna.models.hyperparameters import Hyperparameters
from puna.models.rope import FreqFactors, rope
from puna.models.windows import layer_windows


def trace(g: Tracer, p: Hyperparameters, freq_factors: FreqFactors | None) -> Value:
    d = Decoder.read(p)
    rotation = rope(p, "normal", d.head_dim, freq_factors)
    windows = layer_windows(p, d.num_layers, period=4, size=0)

    def attention(layer: int, x: Value) -> Value:
        q_k_v = layer_normed_qkv(g, d, x, layer)
        rotates = windows[layer] > 0 or not any(windows)
        return causal_attention(g, d, layer, rotation if rotates else None, q_k_v, window=windows[layer])

    def feed_forward(layer: int, x: Value) -> Value:
        return gated(g, x, f"blk.{layer}", "silu")

    result = parallel_decoder(g, d, attention, feed_forward, mixer_norm="attn_norm", ffn_norm="attn_norm")
    return g.op(Scale(p.multiplier("logit_scale")), result)
