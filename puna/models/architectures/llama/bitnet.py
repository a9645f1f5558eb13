"""BitNet: another norm in front of the last product of each half; weights are ternary."""

from __future__ import annotations

from puna.graph import Tracer, Value
from puna.graph.ops import Glu, Linear
from puna.models.blocks import causal_attention, norm, pre_norm_decoder, qkv
from puna.models.decoder import Decoder
from puna.models.hyperparameters import Hyperparameters
from puna.models.rope import FreqFactors, rope


def trace(g: Tracer, p: Hyperparameters, _: FreqFactors | None) -> Value:
    d = Decoder.read(p)
    rotation = rope(p, "neox", d.head_dim, None)

    def attention(layer: int, x: Value) -> Value:
        sub_norm = f"blk.{layer}.attn_sub_norm"
        return causal_attention(g, d, layer, rotation, qkv(g, x, layer), output_norm=sub_norm)

    def feed_forward(layer: int, x: Value) -> Value:
        gate, up = (g.op(Linear(f"blk.{layer}.ffn_{part}"), x) for part in ("gate", "up"))
        y = norm(g, d, g.op(Glu("silu"), gate, up), f"blk.{layer}.ffn_sub_norm")
        return g.op(Linear(f"blk.{layer}.ffn_down"), y)

    return pre_norm_decoder(g, d, attention, feed_forward)
