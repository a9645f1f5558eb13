"""What holds bit for bit: tokens do not depend on one another, bias and residual are added in order."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from puna import _native
from puna.gguf import GgufFile
from tests.kernels.weights import TYPES, columns, random_weight, write_weights

pytestmark = pytest.mark.native

ROWS = 71
TOKENS = 33


@pytest.fixture(params=TYPES)
def file(request: pytest.FixtureRequest, tmp_path: Path) -> _native.GgufFile:
    packed = random_weight(request.param, ROWS, columns(request.param)[-1])
    return GgufFile(write_weights(tmp_path / "weights.gguf", request.param, {"w": packed})).native


@pytest.fixture(params=_native.cpu_info().isas)
def isa(request: pytest.FixtureRequest) -> str:
    return request.param


def activations(file: _native.GgufFile, tokens: int) -> np.ndarray:
    num_columns = file.dequantize("w").size // ROWS
    return np.random.default_rng(3).standard_normal((tokens, num_columns)).astype(np.float32)


def test_tokens_give_the_same_alone_and_together(file: _native.GgufFile, isa: str) -> None:
    x = activations(file, TOKENS)
    together = _native.linear(file, "w", x, isa)
    for tokens in range(1, TOKENS + 1):
        np.testing.assert_array_equal(_native.linear(file, "w", x[-tokens:], isa), together[-tokens:])


def test_more_tokens_than_one_pass_takes(file: _native.GgufFile, isa: str) -> None:
    x = np.tile(activations(file, TOKENS), (20, 1))
    expected = np.tile(_native.linear(file, "w", x[:TOKENS], isa), (20, 1))
    np.testing.assert_array_equal(_native.linear(file, "w", x, isa), expected)


def test_bias_then_residual_are_added_to_the_sum(file: _native.GgufFile, isa: str) -> None:
    x = activations(file, 5)
    rng = np.random.default_rng(4)
    bias = rng.standard_normal(ROWS).astype(np.float32)
    residual = rng.standard_normal((5, ROWS)).astype(np.float32)
    plain = _native.linear(file, "w", x, isa)
    np.testing.assert_array_equal(_native.linear(file, "w", x, isa, bias=bias), plain + bias)
    np.testing.assert_array_equal(_native.linear(file, "w", x, isa, residual=residual), plain + residual)
    both = _native.linear(file, "w", x, isa, bias=bias, residual=residual)
    np.testing.assert_array_equal(both, (plain + bias) + residual)


def test_zero_activations_give_zero(file: _native.GgufFile, isa: str) -> None:
    assert not _native.linear(file, "w", np.zeros_like(activations(file, 3)), isa).any()


def test_tiny_activations_count_as_zero_or_stay_tiny(file: _native.GgufFile, isa: str) -> None:
    out = _native.linear(file, "w", activations(file, 1) * np.float32(1e-40), isa)
    assert np.abs(out).max() < 1e-34


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_a_number_is_not_lost(file: _native.GgufFile, isa: str, bad: float) -> None:
    x = activations(file, 2)
    x[1, 4] = bad
    out = _native.linear(file, "w", x, isa)
    assert np.isfinite(out[0]).all()
    assert not np.isfinite(out[1]).any()


def test_shapes_that_do_not_fit_are_errors(file: _native.GgufFile) -> None:
    x = activations(file, 2)
    with pytest.raises(_native.NativeError, match="columns"):
        _native.linear(file, "w", x[:, :-1].copy())
    with pytest.raises(_native.NativeError, match="bias"):
        _native.linear(file, "w", x, bias=np.zeros(ROWS + 1, np.float32))
    with pytest.raises(_native.NativeError, match="residual"):
        _native.linear(file, "w", x, residual=np.zeros((2, ROWS - 1), np.float32))
