"""The op set that architectures are written in. Every value is float32 [tokens, width].

What an op computes is in the first line of its description: (inputs) -> output. Its fields are its
attributes, which a device gets by their names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from puna.graph.shapes import GraphError, Shapes
from puna.graph.states import FullAttention, SlidingWindow, StateSpec


class Op:
    """Element by element, unless an op says otherwise."""

    __slots__ = ()

    def width(self, _: Shapes, inputs: Sequence[int]) -> int:
        """Of the output, given the inputs' widths. Raises GraphError where inputs or tensors do not fit."""
        if len(set(inputs)) != 1:
            raise GraphError(f"values of {' and '.join(map(str, inputs))} columns cannot be combined")
        return inputs[0]

    def tensors(self, _: Shapes) -> tuple[str | None, ...]:
        """What it reads of the file; None for what the file lacks and may lack."""
        return ()

    @property
    def attributes(self) -> dict[str, Any]:
        """Field -> value."""
        return {name: getattr(self, name) for name in self.__match_args__}  # type: ignore[attr-defined]


class _Weighted(Op):
    """Reads a weight, named as in GGUF without ".weight"."""

    __slots__ = ()
    name: str

    @property
    def weight(self) -> str:
        return f"{self.name}.weight"

    def tensors(self, _: Shapes) -> tuple[str | None, ...]:
        return (self.weight,)

    @property
    def attributes(self) -> dict[str, Any]:
        return {name: value for name, value in super().attributes.items() if name != "name"}


@dataclass(frozen=True, slots=True)
class Embed(_Weighted):
    """() -> [tokens, columns of weight]: the weight's row of each token id."""

    name: str

    def width(self, shapes: Shapes, inputs: Sequence[int]) -> int:
        () = inputs
        return shapes.matrix(self.weight)[0]


@dataclass(frozen=True, slots=True)
class RmsNorm(_Weighted):
    """(x) -> x / rms(x) * weight over consecutive groups as long as the weight (Zhang & Sennrich, 2019)."""

    name: str
    eps: float

    def width(self, shapes: Shapes, inputs: Sequence[int]) -> int:
        (width,), group = inputs, shapes.vector(self.weight)
        if width % group:
            raise GraphError(
                f"tensor {self.weight} has {group} values, which does not divide a width of {width}"
            )
        return width


@dataclass(frozen=True, slots=True)
class Linear(_Weighted):
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
class Add(Op):
    """(a, b) -> a + b"""


@dataclass(frozen=True, slots=True)
class Mul(Op):
    """(a, b) -> a * b"""


@dataclass(frozen=True, slots=True)
class Scale(Op):
    """(x) -> factor * x"""

    factor: float


@dataclass(frozen=True, slots=True)
class Softcap(Op):
    """(x) -> cap * tanh(x / cap)"""

    cap: float


@dataclass(frozen=True, slots=True)
class Glu(Op):
    """(gate, up) -> activation(gate) * up (Shazeer, 2020). activation: silu, gelu or relu."""

    activation: str


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
class Attention(Op):
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

    @property
    def state(self) -> StateSpec:
        return SlidingWindow(self.window) if self.window else FullAttention()


@dataclass(frozen=True, slots=True)
class Rows(Op):
    """(x) -> the rows of x that are to be sampled; what follows is computed for them alone."""
