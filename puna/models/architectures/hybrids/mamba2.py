"""Mamba-2: nothing but its layers, without attention or feed-forward parts."""

from __future__ import annotations

from puna.graph import Tracer, Value
from puna.graph.ops import Add, Embed, Rows
from puna.models.blocks import logits, norm
from puna.models.decoder import Stack
from puna.models.hyperparameters import Hyperparameters
from puna.models.recurrent.selective_scan import Mamba2, mamba2
from puna.models.rope import FreqFactors


def trace(g: Tracer, p: Hyperparameters, _: FreqFactors | None) -> Value:
    d, sizes = Stack.read(p), Mamba2.read(p)
    x = g.op(Embed("token_embd"))
    for layer in range(d.num_layers):
        y = norm(g, d, x, f"blk.{layer}.attn_norm")
        x = g.op(Add(), x, mamba2(g, d, sizes, layer, y))
    return logits(g, norm(g, d, g.op(Rows(), x), "output_norm"))
