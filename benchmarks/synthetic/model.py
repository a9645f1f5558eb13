"""What a synthetic file is made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.weights.recipes import Shape

Value = int | float | str | Sequence[int]


@dataclass(frozen=True)
class SyntheticModel:
    """metadata: keys without the architecture in front; of numbers, int is uint32 and float float32."""

    architecture: str
    title: str
    mixture: str
    """A key of recipes.FILE_TYPES."""
    metadata: Mapping[str, Value]
    tensors: Sequence[Shape]
    pre_tokenizer: str
    chat_template: str | None = None

    @property
    def vocabulary(self) -> int:
        return next(shape.rows for shape in self.tensors if shape.name == "token_embd.weight")


@dataclass(frozen=True)
class Tensors:
    """Shorthand for the shapes of a model's tensors."""

    num_layers: int
    is_tied: bool = False
    """Whether the embeddings make the logits, too."""

    def matrix(self, name: str, rows: int, cols: int, layer: int = -1, *, experts: int = 1) -> Shape:
        """layer -1: of the whole model."""
        full_name = f"{self._prefix(layer)}{name}.weight"
        is_output = full_name == ("token_embd.weight" if self.is_tied else "output.weight")
        return Shape(full_name, rows, cols, layer, self.num_layers, is_output, experts)

    def vector(self, name: str, size: int, layer: int = -1) -> Shape:
        """name: with its suffix."""
        return Shape(f"{self._prefix(layer)}{name}", size, 0, layer, self.num_layers, is_output=False)

    def biases(self, name: str, experts: int, size: int, layer: int) -> Shape:
        """A vector for each expert; name: with its suffix."""
        return Shape(f"{self._prefix(layer)}{name}", experts, size, layer, self.num_layers, is_output=False)

    @staticmethod
    def _prefix(layer: int) -> str:
        return "" if layer < 0 else f"blk.{layer}."
