"""LFM2 with experts in all but the first layers."""

from __future__ import annotations

from puna.graph import Tracer, Value
from puna.graph.ops import Moe
from puna.models.architectures.lfm2 import OUTPUT_NORM, lfm2_mixer
from puna.models.blocks import experts, gated, pre_norm_decoder
from puna.models.decoder import Decoder
from puna.models.hyperparameters import Hyperparameters
from puna.models.rope import FreqFactors


def trace(g: Tracer, p: Hyperparameters, _: FreqFactors | None) -> Value:
    d, num_dense = Decoder.read(p), p.integer("leading_dense_block_count", 0, minimum=0)
    num_used, scale = p.integer("expert_used_count"), p.multiplier("expert_weights_scale")

    def feed_forward(layer: int, x: Value) -> Value:
        block = f"blk.{layer}"
        if layer < num_dense:
            return gated(g, x, block, "silu")
        return experts(g, x, Moe(block, num_used, "sigmoid", True, scale, "silu"))

    return pre_norm_decoder(g, d, lfm2_mixer(g, p, d), feed_forward, output_norm=OUTPUT_NORM)
