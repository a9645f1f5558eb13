"""Metadata of a model file is untrusted: whatever is wrong is named by its key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from puna.models import trace_model
from puna.models.decoder import Decoder
from puna.models.hyperparameters import HyperparameterError, Hyperparameters
from puna.models.rope import rope

pytestmark = pytest.mark.unit


def metadata(**changes: Any) -> dict[str, Any]:
    good = {
        "embedding_length": 64,
        "attention.head_count": 8,
        "attention.head_count_kv": 2,
        "block_count": 2,
        "context_length": 128,
        "attention.layer_norm_rms_epsilon": 1e-5,
    }
    named = {f"llama.{key}": value for key, value in (good | changes).items() if value is not None}
    return {"general.architecture": "llama", **named}


def no_floats(name: str) -> NDArray[np.float32]:
    raise AssertionError(f"{name} is read")


@dataclass(frozen=True)
class Shape:
    shape: tuple[int, ...]


def test_layers_have_equally_many_kv_heads_or_no_attention() -> None:
    d = Decoder.read(Hyperparameters(metadata(**{"attention.head_count_kv": np.array([0, 2])})))
    assert (d.num_kv_heads, d.has_attention) == (2, (False, True))
    d = Decoder.read(Hyperparameters(metadata(nextn_predict_layers=1)))
    assert (d.num_layers, d.has_attention) == (1, (True,))


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"block_count": None}, "llama.block_count is missing"),
        ({"block_count": "two"}, "llama.block_count is 'two', not an integer"),
        ({"block_count": True}, "llama.block_count is True, not an integer"),
        ({"block_count": 0}, "llama.block_count is 0, not between 1 and"),
        ({"block_count": 1 << 40}, "not between 1 and"),
        ({"attention.head_count_kv": np.array([2, 4])}, "head_count_kv differs from layer to layer"),
        ({"attention.head_count_kv": np.array([0, 0])}, "8 heads cannot be shared out over 0 KV heads"),
        ({"attention.head_count_kv": np.array([2])}, "head_count_kv is an array of 1, not 2 whole numbers"),
        ({"attention.head_count_kv": np.array([2, -2])}, "head_count_kv has values beyond 0 and 8"),
        ({"attention.head_count_kv": np.array([True, True])}, "not 2 whole numbers"),
        ({"nextn_predict_layers": 2}, "nextn_predict_layers is 2, not between 0 and 1"),
        ({"attention.head_count_kv": 3}, "8 heads cannot be shared out over 3 KV heads"),
        ({"attention.layer_norm_rms_epsilon": float("nan")}, "not a finite number"),
        ({"attention.value_length": 4}, "value_length differs"),
    ],
)
def test_bad_values_are_named(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(HyperparameterError, match=text):
        Decoder.read(Hyperparameters(metadata(**changes)))


@pytest.mark.parametrize("architecture", [None, 7, "clippy"])
def test_unknown_architecture_is_refused(architecture: object) -> None:
    with pytest.raises(HyperparameterError, match=r"architecture"):
        trace_model({"general.architecture": architecture}, {}, no_floats)


def test_an_unknown_architecture_is_named() -> None:
    with pytest.raises(HyperparameterError, match=r"general.architecture: 'clippy' is not supported"):
        trace_model({"general.architecture": "clippy"}, {}, no_floats)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"rope.dimension_count": 7}, "no multiple of 2"),
        ({"rope.dimension_count": 128}, "not between 1 and 8"),
        ({"rope.freq_base": -1.0}, "not more than 1"),
        ({"rope.freq_base": 1.0}, "not more than 1"),
        ({"rope.scaling.type": ["x"] * 100_000}, "is an array of 100000, not a string"),
        ({"rope.scaling.type": "x" * 100_000, "rope.scaling.factor": 2.0}, "'x{40}' is not supported"),
        ({"rope.scaling.type": "fancy", "rope.scaling.factor": 2.0}, "'fancy' is not supported"),
    ],
)
def test_bad_rotations_are_named(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(HyperparameterError, match=text):
        rope(Hyperparameters(metadata(**changes)), "normal", 8, None)


def test_linear_scaling_slows_every_dimension_alike() -> None:
    plain = rope(Hyperparameters(metadata()), "normal", 8, None)
    scaled = {"rope.scaling.type": "linear", "rope.scaling.factor": 4.0}
    slow = rope(Hyperparameters(metadata(**scaled)), "normal", 8, None)
    np.testing.assert_allclose(slow.inv_freq * 4, plain.inv_freq)


def test_factors_of_the_wrong_length_are_refused_unread() -> None:
    tensors = {"rope_freqs.weight": Shape((1 << 40,)), "token_embd.weight": Shape((64, 100))}
    with pytest.raises(HyperparameterError, match=r"rope_freqs\.weight has 1099511627776 values.* needs 4"):
        trace_model(metadata(), tensors, no_floats)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"general.type": "adapter"}, "the file is an adapter"),
        ({"general.type": "mmproj"}, "the file is a projector"),
        ({"general.architecture": "clip"}, "the file is a projector"),
        ({"general.type": "imatrix"}, "the file is an importance matrix"),
        ({"split.count": 3}, "one part of a split model"),
        ({"split.count": np.array([1, 1])}, "one part of a split model"),
    ],
)
def test_what_is_no_model_is_named(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(HyperparameterError, match=text):
        trace_model(metadata() | changes, {}, no_floats)
