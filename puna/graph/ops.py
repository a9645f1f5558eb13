"""The op set that architectures are written in. Every value is float32 [tokens, width]."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from puna.graph.states import FullAttention, StateSpec


@dataclass(frozen=True, slots=True)
class Embed:
    """() -> [tokens, columns of weight]: the weight's row of each token id."""

    weight: str


@dataclass(frozen=True, slots=True)
class RmsNorm:
    """(x) -> x / rms(x) * weight over consecutive groups of `group` values (Zhang & Sennrich, 2019)."""

    weight: str
    eps: float
    group: int


@dataclass(frozen=True, slots=True)
class Linear:
    """(x) -> x W^T + bias, for a weight in whatever quantization the file has."""

    weight: str
    bias: str | None


@dataclass(frozen=True, slots=True)
class Add:
    """(a, b) -> a + b"""


@dataclass(frozen=True, slots=True)
class Mul:
    """(a, b) -> a * b, element by element."""


@dataclass(frozen=True, slots=True)
class Scale:
    """(x) -> factor * x"""

    factor: float


@dataclass(frozen=True, slots=True)
class Softcap:
    """(x) -> cap * tanh(x / cap)"""

    cap: float


@dataclass(frozen=True, slots=True)
class Glu:
    """(gate, up) -> activation(gate) * up (Shazeer, 2020)."""

    activation: str


@dataclass(frozen=True, slots=True, eq=False)
class RopeConfig:
    """Rotary position embedding (Su et al., 2021) of one kind of layer.

    style: "normal" rotates the pairs (2i, 2i + 1), "neox" the pairs (i, i + n / 2).
    inv_freq: float32 [rotary dimensions / 2], angle per position; scaling of any kind is already in it.
    scale: factor on cosine and sine (YaRN's attention factor).
    """

    style: str
    inv_freq: NDArray[np.float32]
    scale: float = 1.0


@dataclass(frozen=True, slots=True)
class Rope:
    """(x) -> x with the first dimensions of each head rotated by its token's position."""

    num_heads: int
    head_dim: int
    config: RopeConfig


@dataclass(frozen=True, slots=True)
class Attention:
    """(q, k, v) -> softmax(scale * q k^T) v over the tokens kept; k and v join the paged cache first.

    softcap: scores become softcap * tanh(score / softcap); 0 for none.
    """

    layer: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    scale: float
    state: StateSpec = FullAttention()
    softcap: float = 0.0


@dataclass(frozen=True, slots=True)
class Rows:
    """(x) -> the rows of x that are to be sampled; what follows is computed for them alone."""


Op = Embed | RmsNorm | Linear | Add | Mul | Scale | Softcap | Glu | Rope | Attention | Rows
