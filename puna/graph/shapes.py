"""What is known of a file's tensors before one is read."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol


class GraphError(ValueError):
    """Tensors whose shapes do not fit the architecture; the text names them."""


class TensorShape(Protocol):
    """All that is asked of a tensor."""

    @property
    def shape(self) -> tuple[int, ...]:
        """In GGUF order: columns first."""


@dataclass(frozen=True, slots=True)
class Shapes:
    """Sizes of tensors by name. Raises GraphError for one that is missing or has other dimensions."""

    tensors: Mapping[str, TensorShape]

    def __contains__(self, tensor: str) -> bool:
        return tensor in self.tensors

    def vector(self, tensor: str) -> int:
        (size,) = self._shape(tensor, 1)
        return size

    def matrix(self, tensor: str) -> tuple[int, int]:
        """(columns, rows)"""
        columns, rows = self._shape(tensor, 2)
        return columns, rows

    def cube(self, tensor: str) -> tuple[int, int, int]:
        """(columns, rows, matrices)"""
        columns, rows, matrices = self._shape(tensor, 3)
        return columns, rows, matrices

    def size(self, tensor: str) -> int:
        """Values in all, of whatever dimensions. Raises GraphError if it is missing."""
        if tensor not in self.tensors:
            raise GraphError(f"tensor {tensor} is missing")
        return math.prod(self.tensors[tensor].shape)

    def _shape(self, tensor: str, dimensions: int) -> tuple[int, ...]:
        """With as many more ones, or fewer behind the first, as it takes to have so many dimensions."""
        if tensor not in self.tensors:
            raise GraphError(f"tensor {tensor} is missing")
        shape = self.tensors[tensor].shape
        while len(shape) > dimensions and 1 in shape[1:]:
            last = max(i for i, size in enumerate(shape) if i and size == 1)
            shape = shape[:last] + shape[last + 1 :]
        shape += (1,) * (dimensions - len(shape))
        if len(shape) != dimensions:
            raise GraphError(
                f"tensor {tensor} has {len(shape)} dimensions where the model needs {dimensions}"
            )
        return shape
