"""Lowering fuses what the executor does in one pass, and nothing it must not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from puna.backends.cpu.lower import lower
from puna.graph import Graph, RopeConfig, Tracer

pytestmark = pytest.mark.native


@dataclass
class Shape:
    shape: tuple[int, ...]


TENSORS = {f"{name}.weight": Shape((8, 8)) for name in "abcd"} | {"embd.weight": Shape((8, 100))}


class Recorder:
    """Stands in for the native builder: notes the calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[Any, ...]]] = []
        self._num_buffers = 0

    def buffer(self, _width: int) -> int:
        self._num_buffers += 1
        return self._num_buffers - 1

    def __getattr__(self, name: str) -> Any:
        return lambda *args: self.calls.append((name, args))

    def names(self) -> list[str]:
        return [name for name, _ in self.calls]


def lowered(g: Tracer, result: Any) -> Recorder:
    recorder = Recorder()
    graph: Graph = g.graph(result)
    lower(graph, recorder)  # type: ignore[arg-type]
    return recorder


def test_linears_of_one_input_share_one_pass() -> None:
    g = Tracer(TENSORS)
    x = g.embed("embd")
    recorder = lowered(g, g.mul(g.linear(x, "a"), g.linear(x, "b")))
    assert recorder.names() == ["embed", "linear", "mul", "build"]
    assert recorder.calls[1] == ("linear", (0, [1, 2], ["a.weight", "b.weight"], [None, None], None))


def test_residual_joins_its_linear() -> None:
    g = Tracer(TENSORS)
    x = g.embed("embd")
    recorder = lowered(g, g.add(x, g.linear(g.scale(x, 2.0), "a")))
    assert recorder.names() == ["embed", "scale", "linear", "build"]
    assert recorder.calls[2][1] == (1, [2], ["a.weight"], [None], 0)


def test_residual_stays_apart_when_the_linear_is_used_twice() -> None:
    g = Tracer(TENSORS)
    x = g.embed("embd")
    y = g.linear(x, "a")
    assert lowered(g, g.mul(y, g.add(x, y))).names() == ["embed", "linear", "add", "mul", "build"]


def test_sum_of_two_linears_needs_no_add() -> None:
    g = Tracer(TENSORS)
    x = g.embed("embd")
    recorder = lowered(g, g.add(g.linear(x, "a"), g.linear(g.scale(x, 2.0), "b")))
    assert recorder.names() == ["embed", "linear", "scale", "linear", "build"]
    assert recorder.calls[3][1][-1] == 1  # the first linear's buffer is the second's residual


def test_rotation_is_in_place_only_where_nothing_else_reads_its_input() -> None:
    rope = RopeConfig("neox", np.ones(4, np.float32))
    g = Tracer(TENSORS)
    alone = g.embed("embd")
    assert lowered(g, g.rope(alone, 8, rope)).names() == ["embed", "rope", "build"]
    g = Tracer(TENSORS)
    shared = g.embed("embd")
    recorder = lowered(g, g.add(shared, g.rope(shared, 8, rope)))
    assert recorder.names() == ["embed", "scale", "rope", "add", "build"]
