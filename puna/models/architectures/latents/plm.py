"""PLM: latents, and a feed-forward part without a gate."""

from __future__ import annotations

from puna.graph import Tracer, Value
from puna.models.architectures.latents.expanded import expanded_attention
from puna.models.blocks import pre_norm_decoder, two_layers
from puna.models.decoder import Decoder
from puna.models.hyperparameters import Hyperparameters
from puna.models.rope import FreqFactors, rope


def trace(g: Tracer, p: Hyperparameters, _: FreqFactors | None) -> Value:
    d, rank = Decoder.read(p), p.integer("attention.kv_lora_rank")
    rotation = rope(p, "normal", p.integer("rope.dimension_count", maximum=d.head_dim), None)

    def attention(layer: int, x: Value) -> Value:
        return expanded_attention(g, d, layer, rotation, rank, x)

    def feed_forward(layer: int, x: Value) -> Value:
        return two_layers(g, x, f"blk.{layer}", "relu_squared")

    return pre_norm_decoder(g, d, attention, feed_forward)
