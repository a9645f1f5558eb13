"""LFM2: short convolutions between gates, and attention in the layers that have KV heads."""

from __future__ import annotations

from collections.abc import Callable

from puna.graph import Tracer, Value
from puna.graph.ops import Columns, Linear, Mul, ShortConv
from puna.models.blocks import causal_attention, normed_qkv, pre_norm_decoder
from puna.models.decoder import Decoder
from puna.models.hyperparameters import MAX_CONTEXT, Hyperparameters
from puna.models.rope import FreqFactors, rope

OUTPUT_NORM = "token_embd_norm"


def trace(g: Tracer, p: Hyperparameters, _: FreqFactors | None) -> Value:
    d = Decoder.read(p)
    return pre_norm_decoder(g, d, lfm2_mixer(g, p, d), output_norm=OUTPUT_NORM)


def lfm2_mixer(g: Tracer, p: Hyperparameters, d: Decoder) -> Callable[[int, Value], Value]:
    rotation = rope(p, "neox", d.head_dim, None)
    window = p.integer("attention.sliding_window", 0, minimum=0, maximum=MAX_CONTEXT)

    def mixer(layer: int, x: Value) -> Value:
        if d.has_attention[layer]:
            return causal_attention(g, d, layer, rotation, normed_qkv(g, d, x, layer), window=window)
        return _convolution(g, layer, x)

    return mixer


def _convolution(g: Tracer, layer: int, x: Value) -> Value:
    block, width = f"blk.{layer}.shortconv", x.width
    parts = g.op(Linear(f"{block}.in_proj"), x)
    before, behind, x = (g.op(Columns(i * width, width, 3 * width), parts) for i in range(3))
    y = g.op(ShortConv(layer, f"{block}.conv", "none"), g.op(Mul(), before, x))
    return g.op(Linear(f"{block}.out_proj"), g.op(Mul(), behind, y))
