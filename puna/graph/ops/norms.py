"""Rows brought to a common size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from puna.graph.ops.op import Op, Weighted
from puna.graph.shapes import GraphError, Shapes


@dataclass(frozen=True, slots=True)
class RmsNorm(Weighted):
    """(x) -> x / rms(x) * weight over consecutive groups as long as the weight (Zhang & Sennrich, 2019).

    A weight of several rows has one for each group in turn.
    """

    name: str
    eps: float

    def width(self, shapes: Shapes, inputs: Sequence[int]) -> int:
        (width,), (columns, rows) = inputs, shapes.matrix(self.weight)
        if width % (columns * rows):
            raise GraphError(
                f"tensor {self.weight} has {columns * rows} values, which does not divide a width of {width}"
            )
        return width


@dataclass(frozen=True, slots=True)
class LayerNorm(RmsNorm):
    """(x) -> (x - mean) / deviation * weight + bias, if any (Ba et al., 2016), in groups as RmsNorm."""

    def tensors(self, shapes: Shapes) -> tuple[str | None, ...]:
        bias = f"{self.name}.bias"
        return self.weight, bias if bias in shapes else None


@dataclass(frozen=True, slots=True)
class Standardize(Op):
    """(x) -> (x - mean) / deviation over all columns: a LayerNorm without a weight."""

    eps: float


@dataclass(frozen=True, slots=True)
class Softmax(Op):
    """(x) -> e^x / sum of e^x over the whole row"""


@dataclass(frozen=True, slots=True)
class MatchMagnitude(Op):
    """(x, like) -> x * |like| / |x|, over consecutive groups as wide as `like`."""

    def width(self, _: Shapes, inputs: Sequence[int]) -> int:
        width, group = inputs
        if width % group:
            raise GraphError(f"groups of {group} do not divide a width of {width}")
        return width


@dataclass(frozen=True, slots=True)
class L2Norm(Op):
    """(x) -> x / sqrt(|x|^2 + eps) over consecutive groups of `size` columns."""

    size: int
    eps: float

    def width(self, _: Shapes, inputs: Sequence[int]) -> int:
        (width,) = inputs
        if width % self.size:
            raise GraphError(f"groups of {self.size} do not divide a width of {width}")
        return width
