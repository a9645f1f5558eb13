"""MiniCPM 3: latents, and sums with fixed multipliers."""

from __future__ import annotations

from puna.graph import Tracer, Value
from puna.graph.ops import Scale
from puna.models.architectures.latents.expanded import expanded_attention
from puna.models.blocks import gated, pre_norm_decoder
from puna.models.decoder import Decoder
from puna.models.hyperparameters import Hyperparameters
from puna.models.rope import FreqFactors, rope

_EMBEDDING_SCALE, _DEPTH_SCALE, _BASE_WIDTH = 12.0, 1.4, 256


def trace(g: Tracer, p: Hyperparameters, freq_factors: FreqFactors | None) -> Value:
    d, rank = Decoder.read(p), p.integer("attention.kv_lora_rank")
    rotation = rope(p, "neox", p.integer("rope.dimension_count", maximum=d.head_dim), freq_factors)
    residual_scale = Scale(_DEPTH_SCALE / d.num_layers**0.5)

    def attention(layer: int, x: Value) -> Value:
        return g.op(residual_scale, expanded_attention(g, d, layer, rotation, rank, x))

    def feed_forward(layer: int, x: Value) -> Value:
        return g.op(residual_scale, gated(g, x, f"blk.{layer}", "silu"))

    result = pre_norm_decoder(g, d, attention, feed_forward, embedding_scale=_EMBEDDING_SCALE)
    return g.op(Scale(_BASE_WIDTH / d.width), result)
