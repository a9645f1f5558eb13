"""Which layers of a hybrid are recurrent, by the architecture or as the file says; what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from puna.gguf import GgufFile
from puna.graph import FullAttention, GraphError, Recurrent
from puna.models import trace_model
from puna.models.hyperparameters import HyperparameterError
from tests.tiny import TINY, write_tiny

pytestmark = pytest.mark.unit


def layers(tmp_path: Path, name: str, **changes: Any) -> str:
    """R for a recurrent layer, a for one with attention."""
    with GgufFile(write_tiny(tmp_path / "tiny.gguf", TINY[name])) as file:
        named = {f"{TINY[name].architecture}.{key}": value for key, value in changes.items()}
        graph = trace_model(dict(file.metadata) | named, file.tensors, file.dequantize).graph
    kinds = {FullAttention: "a", Recurrent: "R"}
    return "".join(kinds[type(state)] for state in graph.states)


def test_every_so_many_layers_have_attention_and_those_that_only_predict_are_left_out(tmp_path: Path) -> None:
    assert layers(tmp_path, "qwen35") == "RRaRR"


def test_a_file_may_list_the_layers(tmp_path: Path) -> None:
    listed = {"attention.recurrent_layers": np.array([True, True, False, True, True, False])}
    assert layers(tmp_path, "qwen35", full_attention_interval=2, **listed) == "RRaRR"
    assert layers(tmp_path, "lfm2") == "RRaR"
    assert layers(tmp_path, "granitehybrid") == "RaR"
    assert layers(tmp_path, "mamba2") == "RRRR"


@pytest.mark.parametrize(
    ("name", "changes", "text"),
    [
        ("qwen35", {"full_attention_interval": 2}, "tensor blk.1.attn_q.weight is missing"),
        (
            "qwen35",
            {"rope.dimension_sections": np.array([3, 3, 1, 1])},
            "leaves dimensions without a position",
        ),
        ("qwen35", {"attention.recurrent_layers": np.array([True])}, "an array of 1, not 6 truth values"),
        ("qwen35", {"ssm.group_count": 4}, "a width of 192 has no columns"),
        ("qwen3next", {"ssm.state_size": 1 << 40}, "ssm.state_size is 1099511627776, not between"),
        ("granitehybrid", {"ssm.inner_size": 193}, "ssm.inner_size: 193 cannot be shared out over 12 heads"),
        ("gpt2", {"context_length": 4096}, "is for 2048 positions, the context is of 4096"),
        ("mamba2", {"ssm.state_size": 25}, "a width of 492 is not 192 and 292 and 12"),
    ],
)
def test_sizes_that_do_not_fit_are_named(
    name: str, changes: dict[str, Any], text: str, tmp_path: Path
) -> None:
    with pytest.raises((GraphError, HyperparameterError), match=text):
        layers(tmp_path, name, **changes)
