"""Embeddings that each layer has of its own (Gemma 3n, Gemma 4): a table's row for the token, and what a
matrix makes of the first layer's input, added up.

The table is far larger than the rest of the model, but only the rows of tokens that occur are read.
"""

from __future__ import annotations

import math

from puna.graph import Tracer, Value
from puna.graph.ops import Add, Columns, Embed, Glu, Linear, RmsNorm, Rows, Scale
from puna.models.decoder import Stack


class PerLayerEmbeddings:
    """What the layers get, times the square root of 2; narrow() leaves chosen rows of it.

    Factors in front of a norm are left out, and its epsilon is as much larger instead.
    """

    def __init__(self, g: Tracer, d: Stack, x: Value) -> None:
        """x: the first layer's input."""
        self._g = g
        self._d = d
        of_token = g.op(Embed("per_layer_token_embd"))
        of_token = g.op(Scale(math.sqrt(of_token.width // d.num_layers)), of_token)
        projected = g.op(Linear("per_layer_model_proj"), x)
        normed = g.op(RmsNorm("per_layer_proj_norm", d.norm_eps * d.width), projected)
        self._all = g.op(Add(), normed, of_token)

    def narrow(self) -> None:
        self._all = self._g.op(Rows(), self._all)

    def gated(self, layer: int, x: Value) -> Value:
        """norm(projection(gelu(gate(x)) * the layer's embedding))"""
        g, block = self._g, f"blk.{layer}"
        size = self._all.width // self._d.num_layers
        own = g.op(Columns(layer * size, size, self._all.width), self._all)
        mixed = g.op(Glu("gelu"), g.op(Linear(f"{block}.inp_gate"), x), own)
        y = g.op(Linear(f"{block}.proj"), mixed)
        return g.op(RmsNorm(f"{block}.post_norm", 2 * self._d.norm_eps), y)
