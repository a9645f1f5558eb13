"""Grok 1 and 2: norms on both sides, capped scores; Grok 2 has a dense part beside its experts."""

from __future__ import annotations

import math
from dataclasses import replace

from puna.graph import Tracer, Value
from puna.graph.ops import Add, Embed, Scale, Softcap
from puna.models.blocks import causal_attention, experts, fused_qkv, gated, logits, norm, stacked
from puna.models.decoder import Decoder
from puna.models.hyperparameters import Hyperparameters
from puna.models.mixtures import moe
from puna.models.rope import FreqFactors, rope


def trace(g: Tracer, p: Hyperparameters, _: FreqFactors | None) -> Value:
    d = Decoder.read(p)
    rotation = rope(p, "neox", d.head_dim, None)
    scale = p.number("attention.output_scale", 0.08838834764831845)
    softcap = p.soft_cap("attn_logit_softcapping", 30.0)

    def mix(layer: int, x: Value) -> Value:
        q_k_v = fused_qkv(g, d, norm(g, d, x, f"blk.{layer}.attn_norm"), layer)
        y = causal_attention(g, d, layer, rotation, q_k_v, scale=scale, softcap=softcap)
        return norm(g, d, y, f"blk.{layer}.attn_output_norm")

    def feed(layer: int, x: Value) -> Value:
        block = f"blk.{layer}"
        y = _mixture(g, p, block, norm(g, d, x, f"{block}.ffn_norm"))
        is_old = f"{block}.layer_output_norm.weight" in g.shapes
        return norm(g, d, y, f"{block}.{'layer_output_norm' if is_old else 'post_ffw_norm'}")

    x = g.op(Scale(p.number("embedding_scale", 78.38367176906169)), g.op(Embed("token_embd")))
    x = norm(g, d, stacked(g, d, x, mix, feed), "output_norm")
    y = g.op(Scale(p.number("logit_scale", 0.5773502691896257)), logits(g, x))
    cap = p.soft_cap("final_logit_softcapping", 0.0)
    return g.op(Softcap(cap), y) if cap else y


def _mixture(g: Tracer, p: Hyperparameters, block: str, x: Value) -> Value:
    mixed = replace(moe(p, block, scores="softmax", normalized=True), activation="gelu")
    y = experts(g, x, mixed)
    if f"{block}.ffn_up.weight" not in g.shapes:
        return y
    return g.op(Scale(math.sqrt(0.5)), g.op(Add(), gated(g, x, block, "gelu"), y))
