"""A linear kernel gives what exact arithmetic on the same rounded operands gives, for any type and shape."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from puna import _native
from puna.gguf import GgufFile
from tests.kernels.weights import FLOAT_TYPES, TYPES, columns, random_weight, values, write_weights

pytestmark = pytest.mark.oracle

ROWS = (1, 15, 16, 17, 40)
TOKENS = (0, 1, 2, 3, 7, 8, 9, 16, 17, 33)


def rounded_activations(x: NDArray[np.float32]) -> NDArray[np.float64]:
    """To int8 per 32 values, by the largest magnitude, to nearest, ties to even."""
    blocks = x.reshape(x.shape[0], -1, 32)
    largest = np.abs(blocks).max(axis=-1, keepdims=True)
    inverse = np.where(largest > 0, np.float32(127) / np.where(largest > 0, largest, 1), 0).astype(np.float32)
    scale = (largest / np.float32(127)).astype(np.float64)
    return (np.rint(blocks * inverse) * scale).reshape(x.shape)


@pytest.fixture(params=TYPES)
def weight_type(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(params=_native.cpu_info().isas)
def isa(request: pytest.FixtureRequest) -> str:
    return request.param


def test_agrees_with_exact_arithmetic_for_any_shape(weight_type: str, isa: str, tmp_path: Path) -> None:
    tensors = {
        f"{rows}x{cols}": random_weight(weight_type, rows, cols, seed=rows + cols)
        for rows in ROWS
        for cols in columns(weight_type)
    }
    file = GgufFile(write_weights(tmp_path / "weights.gguf", weight_type, tensors)).native
    rng = np.random.default_rng(1)
    for name, packed in tensors.items():
        weight = values(weight_type, packed)
        x = rng.standard_normal((max(TOKENS), weight.shape[1])).astype(np.float32)
        exact_x = x.astype(np.float64) if weight_type in FLOAT_TYPES else rounded_activations(x)
        scale = np.linalg.norm(exact_x, axis=1)[:, None] * np.linalg.norm(weight, axis=1)
        for tokens in TOKENS:
            out = _native.linear(file, name, x[:tokens], isa)
            error = np.abs(out - exact_x[:tokens] @ weight.T) / scale[:tokens]
            assert error.max(initial=0.0) < 1e-6, (name, tokens)


def test_long_sums_stay_accurate(weight_type: str, isa: str, tmp_path: Path) -> None:
    packed = random_weight(weight_type, 3, 16384)
    file = GgufFile(write_weights(tmp_path / "weights.gguf", weight_type, {"w": packed})).native
    x = np.random.default_rng(2).standard_normal((2, 16384)).astype(np.float32)
    exact_x = x.astype(np.float64) if weight_type in FLOAT_TYPES else rounded_activations(x)
    weight = values(weight_type, packed)
    scale = np.linalg.norm(exact_x, axis=1)[:, None] * np.linalg.norm(weight, axis=1)
    error = np.abs(_native.linear(file, "w", x, isa) - exact_x @ weight.T) / scale
    assert error.max() < 1e-6


@pytest.mark.parametrize("fill", [0x00, 0x7F, 0x80, 0xFF])
def test_extreme_integers_do_not_overflow(weight_type: str, isa: str, fill: int, tmp_path: Path) -> None:
    packed = random_weight(weight_type, 2, columns(weight_type)[-1], fill=fill)
    file = GgufFile(write_weights(tmp_path / "weights.gguf", weight_type, {"w": packed})).native
    weight = values(weight_type, packed)
    x = np.ones((3, weight.shape[1]), np.float32)  # rounded to 127 or -127, exactly
    x[1] = -1
    x[2, ::2] = -1
    scale = np.linalg.norm(x, axis=1)[:, None] * np.linalg.norm(weight, axis=1) + 1e-30
    error = np.abs(_native.linear(file, "w", x, isa) - x.astype(np.float64) @ weight.T) / scale
    assert error.max() < 1e-6
