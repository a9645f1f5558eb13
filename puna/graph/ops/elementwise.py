"""What is computed column by column, and columns taken out and put together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from puna.graph.ops.op import Op
from puna.graph.shapes import GraphError, Shapes


@dataclass(frozen=True, slots=True)
class Add(Op):
    """(a, b) -> a + b"""


@dataclass(frozen=True, slots=True)
class Mul(Op):
    """(a, b) -> a * b; a b of fewer columns multiplies as many equal runs of a's."""

    def width(self, _: Shapes, inputs: Sequence[int]) -> int:
        a, b = inputs
        if a % b:
            raise GraphError(f"{b} factors cannot be shared out over {a} columns")
        return a


class _WithVector(Op):
    """Reads a tensor that has a value for each column."""

    __slots__ = ()
    tensor: str

    def width(self, shapes: Shapes, inputs: Sequence[int]) -> int:
        (width,) = inputs
        if (size := shapes.size(self.tensor)) != width:
            raise GraphError(f"tensor {self.tensor} has {size} values where the model needs {width}")
        return width

    def tensors(self, _: Shapes) -> tuple[str | None, ...]:
        return (self.tensor,)


@dataclass(frozen=True, slots=True)
class AddVector(_WithVector):
    """(x) -> x + the tensor's values"""

    tensor: str


@dataclass(frozen=True, slots=True)
class AddFirstRow(Op):
    """(x) -> x + the first row of the tensor"""

    tensor: str

    def width(self, shapes: Shapes, inputs: Sequence[int]) -> int:
        (width,), (columns, _) = inputs, shapes.matrix(self.tensor)
        if columns != width:
            raise GraphError(f"tensor {self.tensor} has {columns} columns where the model needs {width}")
        return width

    def tensors(self, _: Shapes) -> tuple[str, ...]:
        return (self.tensor,)


@dataclass(frozen=True, slots=True)
class MulVector(_WithVector):
    """(x) -> x * the tensor's values, each of which multiplies as many columns as there are for one."""

    tensor: str

    def width(self, shapes: Shapes, inputs: Sequence[int]) -> int:
        (width,) = inputs
        return width if width % shapes.size(self.tensor) == 0 else _WithVector.width(self, shapes, inputs)


@dataclass(frozen=True, slots=True)
class Scale(Op):
    """(x) -> factor * x"""

    factor: float


@dataclass(frozen=True, slots=True)
class Softcap(Op):
    """(x) -> cap * tanh(x / cap)"""

    cap: float


@dataclass(frozen=True, slots=True)
class Clamp(Op):
    """(x) -> x, kept within -limit and limit"""

    limit: float


@dataclass(frozen=True, slots=True)
class GaussianTopK(Op):
    """(x) -> max(0, x - mean - deviations * standard deviation), over all columns (Gemma 3n's sparsity)."""

    deviations: float


@dataclass(frozen=True, slots=True)
class Activation(Op):
    """(x) -> function(x). function: silu, gelu, relu, relu_squared, sigmoid, softplus or tanh."""

    function: str


@dataclass(frozen=True, slots=True)
class Xielu(Op):
    """(x) -> beta x + positive x^2 where x > 0, else beta x + negative (e^min(x, eps) - 1 - x).

    (Huang & Schlag, 2024.)
    """

    positive: float
    negative: float
    beta: float
    eps: float


@dataclass(frozen=True, slots=True)
class Glu(Op):
    """(gate, up) -> activation(gate) * up (Shazeer, 2020).

    activation: silu, gelu, relu; or "swiglu_oai" (gpt-oss): min(gate, 7) sigmoid(1.702 min(gate, 7)) times
    1 + up, up kept within 7; or "silu_limited": what SiLU gives of the gate is at most `limit`, or
    "limited_silu": what it gets is; up is kept within it.
    """

    activation: str
    limit: float = 0.0


@dataclass(frozen=True, slots=True)
class Columns(Op):
    """(x) -> of every `period` consecutive columns, the `size` from `begin` on."""

    begin: int
    size: int
    period: int

    def width(self, _: Shapes, inputs: Sequence[int]) -> int:
        (width,) = inputs
        if not 0 <= self.begin < self.begin + self.size <= self.period or width % self.period:
            raise GraphError(
                f"a width of {width} has no columns {self.begin} to {self.begin + self.size} of every "
                f"{self.period}"
            )
        return width // self.period * self.size


@dataclass(frozen=True, slots=True)
class Repeat(Op):
    """(x) -> all columns of x, so many times one behind the other"""

    times: int

    def width(self, _: Shapes, inputs: Sequence[int]) -> int:
        (width,) = inputs
        return width * self.times


@dataclass(frozen=True, slots=True)
class Concat(Op):
    """(a, b) -> in each of num_runs equal runs of columns, those of a and then those of b."""

    num_runs: int

    def width(self, _: Shapes, inputs: Sequence[int]) -> int:
        if any(width % self.num_runs for width in inputs):
            raise GraphError(f"widths of {inputs} are not {self.num_runs} equal runs")
        return sum(inputs)
