"""Jamba: Mamba, and attention without rotation in the layers that have KV heads; some have experts."""

from __future__ import annotations

from puna.graph import Tracer, Value
from puna.models.blocks import causal_attention, experts, fused_qkv, gated, pre_norm_decoder
from puna.models.decoder import Decoder
from puna.models.hyperparameters import Hyperparameters
from puna.models.mixtures import moe
from puna.models.recurrent.channel_scan import mamba
from puna.models.rope import FreqFactors


def trace(g: Tracer, p: Hyperparameters, _: FreqFactors | None) -> Value:
    d = Decoder.read(p)

    def mixer(layer: int, x: Value) -> Value:
        if d.has_attention[layer]:
            return causal_attention(g, d, layer, None, fused_qkv(g, d, x, layer))
        return mamba(g, p, d, layer, x)

    def feed_forward(layer: int, x: Value) -> Value:
        block = f"blk.{layer}"
        if f"{block}.ffn_gate_inp.weight" not in g.shapes:
            return gated(g, x, block, "silu")
        return experts(g, x, moe(p, block, scores="softmax", normalized=False))

    return pre_norm_decoder(g, d, mixer, feed_forward)
