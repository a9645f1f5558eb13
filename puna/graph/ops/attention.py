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
    """(x) -> x with dimensions of each head rotated by its token's position (Su et al., 2021).

    style: "normal" rotates the pairs (2i, 2i + 1), "neox" the pairs (i, i + n / 2).
    inv_freq: float32 [rotary dimensions / 2], angle per position; scaling of any kind is already in it.
    scale: factor on cosine and sine (YaRN's attention factor).
    begin: the first dimension of a head that is rotated.
    offset: how far behind the token's position it is rotated to.
    """

    head_dim: int
    style: str
    inv_freq: NDArray[np.float32]
    scale: float = 1.0
    begin: int = 0
    offset: int = 0

    def width(self, _: Shapes, inputs: Sequence[int]) -> int:
        (width,), rotary_dim = inputs, 2 * len(self.inv_freq)
        if rotary_dim > self.head_dim - self.begin or width % self.head_dim:
            raise GraphError(
                f"cannot rotate {rotary_dim} dimensions, from {self.begin} on, of heads of {self.head_dim} "
                f"in a width of {width}"
            )
        return width


@dataclass(frozen=True, slots=True)
class Temperature(Op):
    """(x) -> x * (1 + scale * ln(1 + floor((position + offset) / length))): queries of long contexts
    (Nakanishi, 2025).

    length: tokens after which it begins.
    """

    scale: float
    length: int
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Attention(Stateful):
    """(q, k, v) -> softmax(scale * q k^T) v over the tokens kept; k and v join the paged cache first.

    window: 0, or how many of the latest tokens are seen.
    chunk: 0, or how many tokens make a chunk, of which a token sees those before it (Llama 4).
    softcap: scores become softcap * tanh(score / softcap); 0 for none.
    sinks: "", or a tensor with a score for each head, which takes weight and has no value (gpt-oss).
    alibi: 0, or how steeply scores fall with distance (ALiBi, Press et al., 2022): for each position between
    by 2^(-alibi h / n) under the h-th of n heads, where n is a power of two; heads behind the largest such n
    lie half-way between those slopes.
    """

    layer: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    scale: float
    window: int = 0
    softcap: float = 0.0
    sinks: str = ""
    alibi: float = 0.0
    chunk: int = 0

    def width(self, shapes: Shapes, inputs: Sequence[int]) -> int:
        q, kv = self.num_heads * self.head_dim, self.num_kv_heads * self.head_dim
        if tuple(inputs) != (q, kv, kv):
            raise GraphError(
                f"layer {self.layer}: q, k, v are {', '.join(map(str, inputs))} wide, where {self.num_heads} "
                f"heads and {self.num_kv_heads} KV heads of {self.head_dim} need {q}, {kv}, {kv}"
            )
        if self.sinks and (size := shapes.vector(self.sinks)) != self.num_heads:
            raise GraphError(f"tensor {self.sinks} has {size} values where there are {self.num_heads} heads")
        return q

    def tensors(self, _: Shapes) -> tuple[str, ...]:
        return (self.sinks,) if self.sinks else ()

    def state(self, _: Shapes) -> StateSpec:
        """Of a chunk what a window as large would keep: no token sees further back."""
        size = self.window or self.chunk
        return SlidingWindow(size) if size else FullAttention()


@dataclass(frozen=True, slots=True)
class SharedAttention(Op):
    """(q) -> as Attention, over what it keeps in an earlier layer; nothing is kept.

    layer: that one, with the same KV heads and head_dim, and a window that is as wide or wider. Queries may
    be those of chosen rows alone.
    """

    layer: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    scale: float
    window: int = 0
    softcap: float = 0.0

    def width(self, _: Shapes, inputs: Sequence[int]) -> int:
        if tuple(inputs) != (self.num_heads * self.head_dim,):
            raise GraphError(
                f"queries of layer {self.layer}'s keys are {inputs[0]} wide, where {self.num_heads} heads of "
                f"{self.head_dim} need {self.num_heads * self.head_dim}"
            )
        return inputs[0]


@dataclass(frozen=True, slots=True)
class EncoderAttention(Op):
    """(q, k, v) -> softmax(scale * q k^T + bias) v over the tokens of the same text, before and behind.

    The text is in the step as a whole, and nothing is kept of it.

    window: 0, or how many tokens are seen: half of them on either side.
    alibi: 0, or the largest of the heads' slopes' exponents (Press et al., 2021): scores lose in proportion
        to the distance of tokens.
    buckets: "", or a tensor [heads, buckets] with what scores gain by distance: half of the buckets are for
        tokens behind. The first half of those are for one distance each, the others for ranges that grow up
        to 128, and whatever is further away (T5, Raffel et al., 2019).
    """

    num_heads: int
    num_kv_heads: int
    head_dim: int
    scale: float
    window: int = 0
    alibi: float = 0.0
    buckets: str = ""

    def width(self, shapes: Shapes, inputs: Sequence[int]) -> int:
        q, kv = self.num_heads * self.head_dim, self.num_kv_heads * self.head_dim
        if tuple(inputs) != (q, kv, kv):
            raise GraphError(
                f"q, k, v are {', '.join(map(str, inputs))} wide, where {self.num_heads} heads and "
                f"{self.num_kv_heads} KV heads of {self.head_dim} need {q}, {kv}, {kv}"
            )
        if self.buckets and (heads := shapes.matrix(self.buckets)[0]) != self.num_heads:
            raise GraphError(f"tensor {self.buckets} is for {heads} heads where there are {self.num_heads}")
        return q

    def tensors(self, _: Shapes) -> tuple[str, ...]:
        return (self.buckets,) if self.buckets else ()


@dataclass(frozen=True, slots=True)
class LatentAttention(Stateful):
    """(q, k) -> softmax(scale * q k^T) v over all tokens, where v is the first value_dim columns of k.

    k, a single head of head_dim, joins the paged cache first; nothing else is kept (MLA, DeepSeek-V2, in its
    absorbed form: q has been multiplied with what makes keys of latents).
    """

    layer: int
    num_heads: int
    head_dim: int
    value_dim: int
    scale: float

    def width(self, _: Shapes, inputs: Sequence[int]) -> int:
        needed = (self.num_heads * self.head_dim, self.head_dim)
        if tuple(inputs) != needed or not 0 < self.value_dim <= self.head_dim:
            raise GraphError(f"layer {self.layer}: widths of {inputs} where latents need {needed}")
        return self.num_heads * self.value_dim

    def state(self, _: Shapes) -> StateSpec:
        return FullAttention()
