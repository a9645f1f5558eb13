"""The tracer records ops and refuses tensors that do not fit, naming them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from puna.graph import FullAttention, GraphError, Recurrent, Shapes, SlidingWindow, Tracer
from puna.graph.ops import Add, Attention, Embed, Linear, Mul, RmsNorm, Rope, ShortConv

pytestmark = pytest.mark.unit


@dataclass
class Shape:
    shape: tuple[int, ...]


TENSORS = {
    "embd.weight": Shape((8, 100)),
    "conv.weight": Shape((3, 8)),
    "norm.weight": Shape((8,)),
    "head_norm.weight": Shape((4,)),
    "odd_norm.weight": Shape((3,)),
    "up.weight": Shape((8, 12)),
    "cube.weight": Shape((8, 12, 2)),
    "biased.weight": Shape((8, 6, 1, 1)),
    "biased.bias": Shape((6,)),
    "badly_biased.weight": Shape((8, 6)),
    "badly_biased.bias": Shape((5,)),
}


@pytest.fixture
def g() -> Tracer:
    return Tracer(Shapes(TENSORS))


def test_widths_follow_from_shapes(g: Tracer) -> None:
    x = g.op(Embed("embd"))
    assert (x.width, g.op(Linear("up"), x).width, g.op(Linear("biased"), x).width) == (8, 12, 6)


def test_a_vector_is_a_matrix_of_one_row(g: Tracer) -> None:
    x = g.op(Embed("embd"))
    assert g.op(Mul(), x, g.op(Linear("norm"), x)).width == 8


def test_bias_is_used_where_the_file_has_one(g: Tracer) -> None:
    x = g.op(Embed("embd"))
    g.op(Linear("up"), x)
    g.op(Linear("biased"), x)
    assert [node.tensors for node in g.nodes[1:]] == [("up.weight", None), ("biased.weight", "biased.bias")]


def test_short_norm_weight_means_norm_per_head(g: Tracer) -> None:
    x = g.op(Embed("embd"))
    g.op(RmsNorm("head_norm", 1e-5), x)
    assert g.nodes[-1].tensors == ("head_norm.weight",)


def test_a_graph_says_what_each_layer_keeps(g: Tracer) -> None:
    x = g.op(Embed("embd"))
    g.op(Attention(1, 2, 2, 4, 1.0, window=5), x, x, x)
    g.op(Attention(0, 2, 2, 4, 1.0), x, x, x)
    g.op(ShortConv(1, "conv", "none"), x)
    assert g.graph(x).states == (FullAttention(), SlidingWindow(5), Recurrent(16))
    with pytest.raises(GraphError, match="layer 1 has two attentions"):
        g.op(Attention(1, 2, 2, 4, 1.0), x, x, x)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda g, x: g.op(Linear("nothing"), x), "nothing.weight is missing"),
        (
            lambda g, x: g.op(Linear("up"), g.op(Linear("up"), x)),
            "up.weight has rows of 8 values where the model needs 12",
        ),
        (lambda g, x: g.op(Linear("cube"), x), "cube.weight has 3 dimensions"),
        (
            lambda g, x: g.op(Linear("badly_biased"), x),
            "badly_biased.bias has 5 values where the model needs 6",
        ),
        (lambda g, x: g.op(RmsNorm("odd_norm", 1e-5), x), "odd_norm.weight has 3 values"),
        (lambda g, x: g.op(Add(), x, g.op(Linear("up"), x)), "8 and 12 columns"),
        (
            lambda g, x: g.op(Rope(8, "neox", np.ones(5, np.float32)), x),
            "cannot rotate 10 dimensions",
        ),
        (lambda g, x: g.op(Attention(3, 2, 1, 4, 1.0), x, x, x), "layer 3: q, k, v are 8, 8, 8 wide"),
    ],
)
def test_misfits_are_named(g: Tracer, call, text: str) -> None:
    x = g.op(Embed("embd"))
    with pytest.raises(GraphError, match=text):
        call(g, x)
