"""The tracer records ops and refuses tensors that do not fit, naming them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from puna.graph import Attention, FullAttention, GraphError, RopeConfig, SlidingWindow, Tracer
from puna.graph.ops import Linear, RmsNorm

pytestmark = pytest.mark.unit


@dataclass
class Shape:
    shape: tuple[int, ...]


TENSORS = {
    "embd.weight": Shape((8, 100)),
    "norm.weight": Shape((8,)),
    "head_norm.weight": Shape((4,)),
    "odd_norm.weight": Shape((3,)),
    "up.weight": Shape((8, 12)),
    "biased.weight": Shape((8, 6, 1, 1)),
    "biased.bias": Shape((6,)),
    "badly_biased.weight": Shape((8, 6)),
    "badly_biased.bias": Shape((5,)),
}


@pytest.fixture
def g() -> Tracer:
    return Tracer(TENSORS)


def test_widths_follow_from_shapes(g: Tracer) -> None:
    x = g.embed("embd")
    assert (x.width, g.linear(x, "up").width, g.linear(x, "biased").width) == (8, 12, 6)


def test_bias_is_used_where_the_file_has_one(g: Tracer) -> None:
    x = g.embed("embd")
    g.linear(x, "up")
    g.linear(x, "biased")
    assert [node.op for node in g.nodes[1:]] == [
        Linear("up.weight", None),
        Linear("biased.weight", "biased.bias"),
    ]


def test_short_norm_weight_means_norm_per_head(g: Tracer) -> None:
    x = g.embed("embd")
    g.rms_norm(x, "head_norm", 1e-5)
    assert g.nodes[-1].op == RmsNorm("head_norm.weight", 1e-5, 4)


def test_a_graph_says_what_each_layer_keeps(g: Tracer) -> None:
    x = g.embed("embd")
    window = SlidingWindow(5)
    g.attention(x, x, x, Attention(1, 2, 2, 4, 1.0, window))
    with pytest.raises(GraphError, match="layer 0 has no attention"):
        g.graph(x)
    g.attention(x, x, x, Attention(0, 2, 2, 4, 1.0))
    assert g.graph(x).states == (FullAttention(), window)
    with pytest.raises(GraphError, match="layer 1 has two attentions"):
        g.attention(x, x, x, Attention(1, 2, 2, 4, 1.0))


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda g, x: g.linear(x, "nothing"), "nothing.weight is missing"),
        (
            lambda g, x: g.linear(g.linear(x, "up"), "up"),
            "up.weight has rows of 8 values where the model needs 12",
        ),
        (lambda g, x: g.linear(x, "norm"), "norm.weight has 1 dimensions"),
        (lambda g, x: g.linear(x, "badly_biased"), "badly_biased.bias has shape"),
        (lambda g, x: g.rms_norm(x, "odd_norm", 1e-5), "odd_norm.weight has 3 values"),
        (lambda g, x: g.add(x, g.linear(x, "up")), "8 and 12 columns"),
        (
            lambda g, x: g.rope(x, 8, RopeConfig("neox", np.ones(5, np.float32))),
            "cannot rotate 10 dimensions",
        ),
        (lambda g, x: g.attention(x, x, x, Attention(3, 2, 1, 4, 1.0)), "layer 3: q, k, v are 8, 8, 8 wide"),
    ],
)
def test_misfits_are_named(g: Tracer, call, text: str) -> None:
    x = g.embed("embd")
    with pytest.raises(GraphError, match=text):
        call(g, x)
