"""Products with a matrix, and rows of one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from puna.graph.ops.op import Op, Weighted
from puna.graph.shapes import GraphError, Shapes


@dataclass(frozen=True, slots=True)
class Embed(Weighted):
    """() -> [tokens, columns of weight]: the weight's row of each token id."""

    name: str

    def width(self, shapes: Shapes, inputs: Sequence[int]) -> int:
        () = inputs
        return shapes.matrix(self.weight)[0]


@dataclass(frozen=True, slots=True)
class EmbedPosition(Embed):
    """() -> [tokens, columns of weight]: the weight's row of each token's position."""


@dataclass(frozen=True, slots=True)
class HiddenBefore(Op):
    """() -> [tokens, size]: what the model has made of the token before each token; zeros where there is none
    or it is not known. For prediction heads alone.
    """

    size: int

    def width(self, _: Shapes, inputs: Sequence[int]) -> int:
        () = inputs
        return self.size


@dataclass(frozen=True, slots=True)
class Linear(Weighted):
    """(x) -> x W^T + bias, for a weight in whatever quantization the file has, and its bias if it has one."""

    name: str

    def width(self, shapes: Shapes, inputs: Sequence[int]) -> int:
        (width,), (columns, rows) = inputs, shapes.matrix(self.weight)
        if columns != width:
            raise GraphError(
                f"tensor {self.weight} has rows of {columns} values where the model needs {width}"
            )
        bias = self.tensors(shapes)[1]
        if bias is not None and (size := shapes.vector(bias)) != rows:
            raise GraphError(f"tensor {bias} has {size} values where the model needs {rows}")
        return rows

    def tensors(self, shapes: Shapes) -> tuple[str | None, ...]:
        bias = f"{self.name}.bias"
        return self.weight, bias if bias in shapes else None


@dataclass(frozen=True, slots=True)
class HeadLinear(Weighted):
    """(x) -> for each of num_heads equal runs of columns, its product with a matrix of its own: x_h W_h^T.

    The weight is [columns of a run, rows, heads] in GGUF order.
    """

    name: str
    num_heads: int

    def width(self, shapes: Shapes, inputs: Sequence[int]) -> int:
        (width,), (columns, rows, heads) = inputs, shapes.cube(self.weight)
        if heads != self.num_heads or columns * heads != width:
            raise GraphError(
                f"tensor {self.weight} has {heads} matrices with rows of {columns} values where the model "
                f"needs {self.num_heads} for {width} columns"
            )
        return rows * heads


@dataclass(frozen=True, slots=True)
class Rows(Op):
    """(x) -> the rows of x of which something is wanted; what follows is computed for them alone."""


@dataclass(frozen=True, slots=True)
class PooledRows(Op):
    """(x) -> for each of the rows of which something is wanted, what its text's tokens up to it have
    together.

    kind: "mean", or "first": the first token's row. Texts begin with their first token.
    """

    kind: str


@dataclass(frozen=True, slots=True)
class SampledRows(Op):
    """(x) -> of the rows that were chosen, those to be sampled. The others want x itself: hidden states."""
