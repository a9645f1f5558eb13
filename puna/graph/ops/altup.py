"""A residual stream of several parts, of which layers compute the first and guess the others (AltUp: Baykal
et al., 2023).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from puna.graph.ops.op import Op
from puna.graph.shapes import GraphError, Shapes


@dataclass(frozen=True, slots=True)
class AltUpPredict(Op):
    """(x, weights) -> stream i of x + sum over j of weights[i * num_streams + j] * stream j."""

    num_streams: int

    def width(self, _: Shapes, inputs: Sequence[int]) -> int:
        width, weights = inputs
        if width % self.num_streams or weights != self.num_streams**2:
            raise GraphError(f"{weights} weights for {self.num_streams} streams of {width} values together")
        return width


@dataclass(frozen=True, slots=True)
class AltUpCorrect(Op):
    """(x, computed, weights) -> stream i of x + (1 + weights[i]) * (computed - stream 0 of x)."""

    def width(self, _: Shapes, inputs: Sequence[int]) -> int:
        width, computed, num_streams = inputs
        if computed * num_streams != width:
            raise GraphError(f"{num_streams} streams of {computed} values are not {width}")
        return width


@dataclass(frozen=True, slots=True)
class AltUpAddToOthers(Op):
    """(x, y) -> stream 0 of x, and y added to each of the others."""

    def width(self, _: Shapes, inputs: Sequence[int]) -> int:
        width, stream = inputs
        if width % stream:
            raise GraphError(f"streams of {stream} values do not divide a width of {width}")
        return width
