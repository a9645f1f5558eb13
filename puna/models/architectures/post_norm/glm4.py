"""GLM-4 (0414): norms before and behind each half; one matrix for gate and up; half of a head rotates."""

from __future__ import annotations

from puna.graph import Tracer, Value
from puna.graph.ops import Embed
from puna.models.blocks import causal_attention, gated_as_one, qkv, sandwich_decoder
from puna.models.decoder import Decoder
from puna.models.hyperparameters import Hyperparameters
from puna.models.rope import FreqFactors, has_sections, rope


def trace(g: Tracer, p: Hyperparameters, freq_factors: FreqFactors | None) -> Value:
    d = Decoder.read(p)
    rotation = rope(p, "neox" if has_sections(p) else "normal", d.head_dim, freq_factors)

    def attention(layer: int, x: Value) -> Value:
        return causal_attention(g, d, layer, rotation, qkv(g, x, layer))

    def feed_forward(layer: int, x: Value) -> Value:
        return gated_as_one(g, x, f"blk.{layer}", "silu")

    return sandwich_decoder(g, d, g.op(Embed("token_embd")), attention, feed_forward)
