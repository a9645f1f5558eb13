"""What the layers of a model keep of the tokens that they have seen."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FullAttention:
    """Keys and values of every token."""


@dataclass(frozen=True, slots=True)
class SlidingWindow:
    """Keys and values of the latest tokens: a token sees itself and the `size` - 1 before it."""

    size: int


@dataclass(frozen=True, slots=True)
class Recurrent:
    """A state of so many float32 values, whatever the number of tokens: each token changes it."""

    num_values: int


StateSpec = FullAttention | SlidingWindow | Recurrent
