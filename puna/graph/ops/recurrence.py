"""Layers that keep a state of fixed size: each token changes it, in order, and reads it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from puna.graph.ops.op import Stateful
from puna.graph.shapes import GraphError, Shapes
from puna.graph.states import Recurrent, StateSpec


@dataclass(frozen=True, slots=True)
class ShortConv(Stateful):
    """(x) -> function(for each column the sum over the latest K tokens of x times the weight, + bias).

    Tensors: `{name}.weight` [K, columns], whose last value meets the token itself, and `{name}.bias` if the
    file has one. function: "silu" or "none". The state is the K - 1 rows of x before the next token, the
    oldest first.
    """

    layer: int
    name: str
    function: str

    def width(self, shapes: Shapes, inputs: Sequence[int]) -> int:
        (width,), (_, channels) = inputs, shapes.matrix(f"{self.name}.weight")
        if width != channels:
            raise GraphError(f"tensor {self.name}.weight is for {channels} columns where there are {width}")
        return width

    def tensors(self, shapes: Shapes) -> tuple[str | None, ...]:
        bias = f"{self.name}.bias"
        return f"{self.name}.weight", bias if bias in shapes else None

    def state(self, shapes: Shapes) -> StateSpec:
        size, channels = shapes.matrix(f"{self.name}.weight")
        return Recurrent((size - 1) * channels)


@dataclass(frozen=True, slots=True)
class GatedDeltaNet(Stateful):
    """(q, k, v, decay, beta) -> read of a matrix per head that each token corrects (Yang et al., 2024).

    For each value head, with S [key_dim, value_dim] its state: S *= exp(decay); S += k (beta (v - S^T k))^T;
    output S^T q * scale. decay and beta have a column for each value head; or if decays_rows, decay has one
    for each of its rows of S (Kimi Delta Attention, Moonshot AI, 2025). Value head h uses the key head
    h // (num_value_heads / num_key_heads) if `grouped`, and h % num_key_heads if not.
    """

    layer: int
    num_key_heads: int
    num_value_heads: int
    key_dim: int
    value_dim: int
    scale: float
    grouped: bool
    decays_rows: bool = False

    def width(self, _: Shapes, inputs: Sequence[int]) -> int:
        keys, values = self.num_key_heads * self.key_dim, self.num_value_heads * self.value_dim
        decays = self.num_value_heads * (self.key_dim if self.decays_rows else 1)
        needed = (keys, keys, values, decays, self.num_value_heads)
        if tuple(inputs) != needed or self.num_value_heads % self.num_key_heads:
            raise GraphError(f"layer {self.layer}: widths of {inputs} where a delta net needs {needed}")
        return values

    def state(self, _: Shapes) -> StateSpec:
        return Recurrent(self.num_value_heads * self.key_dim * self.value_dim)


@dataclass(frozen=True, slots=True)
class SelectiveScan(Stateful):
    """(x, b, c, dt) -> Mamba-2's scan (Dao & Gu, 2024), with D x added.

    For each head, with S [head_dim, state_dim] its state and its group's b and c: dt' = softplus(dt + bias);
    S = exp(A dt') S + x dt' b^T; output S c + D x. Tensors, of a value for each head: `{name}_a`, `{name}_d`,
    `{name}_dt.bias`; A is negative already.
    """

    layer: int
    name: str
    num_heads: int
    head_dim: int
    num_groups: int
    state_dim: int

    def width(self, shapes: Shapes, inputs: Sequence[int]) -> int:
        heads, groups = self.num_heads * self.head_dim, self.num_groups * self.state_dim
        if tuple(inputs) != (heads, groups, groups, self.num_heads) or self.num_heads % self.num_groups:
            raise GraphError(
                f"layer {self.layer}: widths of {inputs} where a scan needs "
                f"{(heads, groups, groups, self.num_heads)}"
            )
        for tensor in self.tensors(shapes):
            if (size := shapes.size(tensor)) != self.num_heads:
                raise GraphError(f"tensor {tensor} has {size} values where there are {self.num_heads} heads")
        return heads

    def tensors(self, _: Shapes) -> tuple[str, ...]:
        return f"{self.name}_a", f"{self.name}_d", f"{self.name}_dt.bias"

    def state(self, _: Shapes) -> StateSpec:
        return Recurrent(self.num_heads * self.head_dim * self.state_dim)


@dataclass(frozen=True, slots=True)
class ChannelScan(Stateful):
    """(x, b, c, dt) -> Mamba's scan (Gu & Dao, 2023), with D x added.

    For each column of x, with S [state_dim] its state: dt' = softplus(dt); S = exp(A dt') S + x dt' b; output
    S c + D x. Tensors: `{name}_a` [state_dim, columns], which is negative already, and `{name}_d` [columns].
    """

    layer: int
    name: str
    state_dim: int

    def width(self, shapes: Shapes, inputs: Sequence[int]) -> int:
        width, a = inputs[0], shapes.matrix(f"{self.name}_a")
        if tuple(inputs) != (width, self.state_dim, self.state_dim, width):
            raise GraphError(f"layer {self.layer}: widths of {inputs} where a state has {self.state_dim}")
        if a != (self.state_dim, width) or shapes.size(f"{self.name}_d") != width:
            raise GraphError(f"tensors {self.name}_a and {self.name}_d do not fit {width} columns")
        return width

    def tensors(self, _: Shapes) -> tuple[str, ...]:
        return f"{self.name}_a", f"{self.name}_d"

    def state(self, shapes: Shapes) -> StateSpec:
        return Recurrent(self.state_dim * shapes.size(f"{self.name}_d"))
