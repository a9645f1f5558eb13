"""Lowering fuses what the executor does in one pass, and nothing it must not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from puna.backends.cpu.lower import lower
from puna.graph import Graph, Shapes, Tracer
from puna.graph.ops import Add, Embed, Linear, Mul, Rope, Scale

pytestmark = pytest.mark.native


@dataclass
class Shape:
    shape: tuple[int, ...]


TENSORS = {f"{name}.weight": Shape((8, 8)) for name in "abcd"} | {"embd.weight": Shape((8, 100))}


class Recorder:
    """Stands in for the native builder: notes the calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self._num_buffers = 0

    def buffer(self, _width: int) -> int:
        self._num_buffers += 1
        return self._num_buffers - 1

    def op(self, name: str, *args: Any, **attributes: Any) -> None:
        del attributes
        self.calls.append((name, *args))

    def build(self, result: int, *, hidden: int) -> None:
        pass

    def names(self) -> list[str]:
        return [call[0] for call in self.calls]


def lowered(g: Tracer, result: Any) -> Recorder:
    recorder = Recorder()
    graph: Graph = g.graph(result)
    lower(graph, recorder)  # type: ignore[arg-type]
    return recorder


def test_linears_of_one_input_share_one_pass() -> None:
    g = Tracer(Shapes(TENSORS))
    x = g.op(Embed("embd"))
    recorder = lowered(g, g.op(Mul(), g.op(Linear("a"), x), g.op(Linear("b"), x)))
    assert recorder.names() == ["Embed", "Linear", "Mul"]
    assert recorder.calls[1] == ("Linear", [0], [1, 2], ["a.weight", None, "b.weight", None])


def test_residual_joins_its_linear() -> None:
    g = Tracer(Shapes(TENSORS))
    x = g.op(Embed("embd"))
    recorder = lowered(g, g.op(Add(), x, g.op(Linear("a"), g.op(Scale(2.0), x))))
    assert recorder.names() == ["Embed", "Scale", "Linear"]
    assert recorder.calls[2] == ("Linear", [1, 0], [2], ("a.weight", None))


def test_residual_stays_apart_when_the_linear_is_used_twice() -> None:
    g = Tracer(Shapes(TENSORS))
    x = g.op(Embed("embd"))
    y = g.op(Linear("a"), x)
    assert lowered(g, g.op(Mul(), y, g.op(Add(), x, y))).names() == ["Embed", "Linear", "Add", "Mul"]


def test_sum_of_two_linears_needs_no_add() -> None:
    g = Tracer(Shapes(TENSORS))
    x = g.op(Embed("embd"))
    y = g.op(Linear("b"), g.op(Scale(2.0), x))
    recorder = lowered(g, g.op(Add(), g.op(Linear("a"), x), y))
    assert recorder.names() == ["Embed", "Scale", "Linear", "Linear"]
    second, first = recorder.calls[3], recorder.calls[2]
    assert second[1][1:] == first[2]  # the first linear's buffer is the second's residual


def test_rotation_is_in_place_only_where_nothing_else_reads_its_input() -> None:
    rope = Rope(8, "neox", np.ones(4, np.float32))
    g = Tracer(Shapes(TENSORS))
    assert lowered(g, g.op(rope, g.op(Embed("embd")))).names() == ["Embed", "Rope"]
    g = Tracer(Shapes(TENSORS))
    shared = g.op(Embed("embd"))
    recorder = lowered(g, g.op(Add(), shared, g.op(rope, shared)))
    assert recorder.names() == ["Embed", "Scale", "Rope", "Add"]
