"""What files with experts and latents may leave out, and which of them are refused."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from puna.gguf import GgufFile
from puna.graph import Graph, GraphError
from puna.graph.ops import LatentAttention, Moe
from puna.models import trace_model
from puna.models.hyperparameters import HyperparameterError
from tests.tiny import TINY, write_tiny

pytestmark = pytest.mark.unit


@dataclass(frozen=True)
class Shape:
    shape: tuple[int, ...]


def traced(
    path: Path,
    name: str,
    metadata: Mapping[str, Any] | None = None,
    tensors: Mapping[str, Shape] | None = None,
) -> Graph:
    tiny = TINY[name]
    write_tiny(path / "tiny.gguf", replace(tiny, metadata=tiny.metadata | (metadata or {})))
    with GgufFile(path / "tiny.gguf") as file:
        return trace_model(file.metadata, {**file.tensors, **(tensors or {})}, file.dequantize).graph


def only_moe(graph: Graph) -> Moe:
    """What all layers with experts have, but for its name."""
    found = {replace(node.op, name="") for node in graph.nodes if isinstance(node.op, Moe)}
    (moe,) = found
    return moe


def scale_of_scores(graph: Graph) -> float:
    (scale,) = {node.op.scale for node in graph.nodes if isinstance(node.op, LatentAttention)}
    return scale


@pytest.mark.parametrize(("function", "scores"), [(1, "softmax"), (2, "sigmoid"), (3, "chosen_softmax")])
def test_scores_of_experts(tmp_path: Path, function: int, scores: str) -> None:
    """The row has the bias that only sigmoids come with."""
    bias = {"blk.1.exp_probs_b.bias": Shape((12,)), "blk.2.exp_probs_b.bias": Shape((12,))}
    graph = traced(tmp_path, "deepseek2", {"expert_gating_func": function}, bias)
    assert only_moe(graph).scores == scores


def test_scores_of_files_that_do_not_say(tmp_path: Path) -> None:
    assert only_moe(traced(tmp_path, "deepseek2-lite")).scores == "softmax"


def test_no_scale_and_no_groups_may_be_written_as_zero(tmp_path: Path) -> None:
    zeros = {"expert_weights_scale": 0.0, "expert_group_count": 0, "expert_group_used_count": 0}
    moe = only_moe(traced(tmp_path, "deepseek2", zeros))
    assert (moe.scale, moe.num_groups, moe.num_groups_used) == (1.0, 1, 1)


def test_yarn_is_in_the_scale_of_scores(tmp_path: Path) -> None:
    plain = scale_of_scores(traced(tmp_path, "deepseek2", {"rope.scaling.type": "none"}))
    assert plain == pytest.approx(48**-0.5)
    assert scale_of_scores(traced(tmp_path, "deepseek2")) == pytest.approx(
        plain * (1 + 0.0707 * math.log(4)) ** 2
    )


@pytest.mark.parametrize(
    ("name", "tensor", "text"),
    [
        ("mixtral", "blk.0.ffn_gate.0.weight", "experts in tensors of their own"),
        ("deepseek2", "blk.0.attn_kv_b.weight", "newer ones have attn_k_b and attn_v_b"),
    ],
)
def test_older_files_are_refused(tmp_path: Path, name: str, tensor: str, text: str) -> None:
    with pytest.raises(GraphError, match=text):
        traced(tmp_path, name, tensors={tensor: Shape((96, 160))})


@pytest.mark.parametrize(
    ("metadata", "text"),
    [
        ({"expert_gating_func": 9}, "expert_gating_func is 9, not 1, 2 or 3"),
        ({"rope.dimension_count": 7}, "rope.dimension_count is 7, no multiple of 2"),
        ({"attention.temperature_scale": 0.1}, "temperature_length is missing"),
        ({"expert_weights_norm": 1}, "expert_weights_norm is 1, not a truth value"),
    ],
)
def test_metadata_that_cannot_be_followed(tmp_path: Path, metadata: dict[str, Any], text: str) -> None:
    with pytest.raises(HyperparameterError, match=text):
        traced(tmp_path, "deepseek2", metadata)


def test_a_scale_beyond_all_numbers_is_left_to_the_backend(tmp_path: Path) -> None:
    path = write_tiny(tmp_path / "tiny.gguf", TINY["deepseek2"])
    with GgufFile(path) as file:
        metadata = dict(file.metadata) | {"deepseek2.rope.scaling.attn_factor": 1e300}
        graph = trace_model(metadata, file.tensors, file.dequantize).graph
    assert scale_of_scores(graph) == math.inf
