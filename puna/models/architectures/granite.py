"""Granite 3 and 4: sums with fixed multipliers; in hybrids layers without KV heads are Mamba-2."""

from __future__ import annotations

from collections.abc import Callable

from puna.graph import Tracer, Value
from puna.graph.ops import Add, Moe, Scale
from puna.models.blocks import causal_attention, experts, gated, pre_norm_decoder, qkv
from puna.models.decoder import Decoder
from puna.models.hyperparameters import Hyperparameters
from puna.models.rope import FreqFactors, rope
from puna.models.selective_scan import Mamba2, mamba2


def trace(g: Tracer, p: Hyperparameters, freq_factors: FreqFactors | None) -> Value:
    d = Decoder.read(p)
    sizes = None if all(d.has_attention) else Mamba2.read(p)
    rotates = p.flag("rope.scaling.finetuned", True)
    rotation = rope(p, "normal", d.head_dim, freq_factors) if rotates else None
    feed_forward, residual_scale = _feed_forward(g, p), Scale(p.multiplier("residual_scale"))
    scale = p.number("attention.scale", 0.0) or None

    def mixer(layer: int, x: Value) -> Value:
        if sizes is None or d.has_attention[layer]:
            y = causal_attention(g, d, layer, rotation, qkv(g, x, layer), scale=scale)
        else:
            y = mamba2(g, d, sizes, layer, x)
        return g.op(residual_scale, y)

    result = pre_norm_decoder(
        g,
        d,
        mixer,
        lambda layer, x: g.op(residual_scale, feed_forward(layer, x)),
        embedding_scale=p.multiplier("embedding_scale"),
    )
    return g.op(Scale(1 / p.multiplier("logit_scale")), result)


def _feed_forward(g: Tracer, p: Hyperparameters) -> Callable[[int, Value], Value]:
    """A gated one; or experts, and one that all tokens share where the file has it."""
    if p.integer("expert_count", 0, minimum=0) == 0:
        return lambda layer, x: gated(g, x, f"blk.{layer}", "silu")
    num_used, scale = p.integer("expert_used_count"), p.multiplier("expert_weights_scale")

    def with_experts(layer: int, x: Value) -> Value:
        block = f"blk.{layer}"
        y = experts(g, x, Moe(block, num_used, "softmax", True, scale, "silu"))
        if f"{block}.ffn_up_shexp.weight" not in g.shapes:
            return y
        return g.op(Add(), y, gated(g, x, block, "silu", suffix="_shexp"))

    return with_experts
