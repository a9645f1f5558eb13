"""Mamba and Falcon-Mamba: nothing but its layers, without attention or feed-forward parts."""

from __future__ import annotations

from puna.graph import Tracer, Value
from puna.graph.ops import Add, Embed, Rows
from puna.models.blocks import logits, norm
from puna.models.decoder import Stack
from puna.models.hyperparameters import Hyperparameters
from puna.models.recurrent.channel_scan import mamba
from puna.models.rope import FreqFactors


def trace(g: Tracer, p: Hyperparameters, _: FreqFactors | None) -> Value:
    d = Stack.read(p)
    x = g.op(Embed("token_embd"))
    for layer in range(d.num_layers):
        x = g.op(Add(), x, mamba(g, p, d, layer, norm(g, d, x, f"blk.{layer}.attn_norm")))
    return logits(g, norm(g, d, g.op(Rows(), x), "output_norm"))
