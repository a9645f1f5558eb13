"""What all ops have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from puna.graph.shapes import GraphError, Shapes
from puna.graph.states import StateSpec

_NAMES = ("buckets", "name", "sinks", "tensor")


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
        """Field -> value, without those that name tensors."""
        fields = [name for name in self.__match_args__ if name not in _NAMES]  # type: ignore[attr-defined]
        return {name: getattr(self, name) for name in fields}


class Weighted(Op):
    """Reads a weight, named as in GGUF without ".weight"."""

    __slots__ = ()
    name: str

    @property
    def weight(self) -> str:
        return f"{self.name}.weight"

    def tensors(self, _: Shapes) -> tuple[str | None, ...]:
        return (self.weight,)


class Stateful(Op):
    """Reads what its layer keeps of the tokens before, and adds its tokens to it."""

    __slots__ = ()
    layer: int

    def state(self, shapes: Shapes) -> StateSpec:
        """What it keeps."""
        raise NotImplementedError
