"""Attention, and the rotation of what it compares."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from puna.graph.ops.op import Op, Stateful
from puna.graph.shapes import GraphError, Shapes
from puna.graph.states import FullAttention, SlidingWindow, StateSpec


@dataclass(frozen=True, slots=True, eq=False)
class Rope(Op):
    """(x) -> x with the first dimensions of each head rotated by its token's position (Su et al., 2021).

    style: "normal" rotates the pairs (2i, 2i + 1), "neox" the pairs (i, i + n / 2).
    inv_freq: float32 [rotary dimensions / 2], angle per position; scaling of any kind is already in it.
    scale: factor on cosine and sine (YaRN's attention factor).
    """

    head_dim: int
    style: str
    inv_freq: NDArray[np.float32]
    scale: float = 1.0

    def width(self, _: Shapes, inputs: Sequence[int]) -> int:
        (width,), rotary_dim = inputs, 2 * len(self.inv_freq)
        if rotary_dim > self.head_dim or width % self.head_dim:
            raise GraphError(
                f"cannot rotate {rotary_dim} dimensions of heads of {self.head_dim} in a width of {width}"
            )
        return width


@dataclass(frozen=True, slots=True)
class Attention(Stateful):
    """(q, k, v) -> softmax(scale * q k^T) v over the tokens kept; k and v join the paged cache first.

    window: 0, or how many of the latest tokens are seen.
    softcap: scores become softcap * tanh(score / softcap); 0 for none.
    """

    layer: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    scale: float
    window: int = 0
    softcap: float = 0.0

    def width(self, _: Shapes, inputs: Sequence[int]) -> int:
        q, kv = self.num_heads * self.head_dim, self.num_kv_heads * self.head_dim
        if tuple(inputs) != (q, kv, kv):
            raise GraphError(
                f"layer {self.layer}: q, k, v are {', '.join(map(str, inputs))} wide, where {self.num_heads} "
                f"heads and {self.num_kv_heads} KV heads of {self.head_dim} need {q}, {kv}, {kv}"
            )
        return q

    def state(self, _: Shapes) -> StateSpec:
        return SlidingWindow(self.window) if self.window else FullAttention()
