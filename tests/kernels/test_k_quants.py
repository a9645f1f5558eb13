"""K-quants of our own search are nearer to the weights than ggml's, by its measure and by the plain one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from puna._native import ThreadPool, cpu_info, quantize
from puna.gguf import GgufFile
from tests import ggml

pytestmark = pytest.mark.oracle

GROUPS = {"Q2_K": 16, "Q3_K": 16, "Q4_K": 32, "Q5_K": 32, "Q6_K": 16}
HALVES = {"Q2_K": [80, 82], "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208]}


@pytest.fixture(scope="module")
def pool() -> Iterator[ThreadPool]:
    pool = ThreadPool(2)
    yield pool
    pool.close()


@pytest.fixture(scope="module")
def tensors(smollm2_path: Path, gemma3_path: Path) -> dict[str, NDArray[np.float32]]:
    """[rows, 256] of what weights are, and of what is hard."""
    rng = np.random.default_rng(0)
    bell = rng.standard_normal((128, 256)).astype(np.float32)
    found = {
        "gaussian": bell,
        "heavy tails": rng.standard_t(3, bell.shape).astype(np.float32),
        "heavier tails": bell**5,
        "uniform": rng.random(bell.shape).astype(np.float32),
        "negative": -rng.random(bell.shape).astype(np.float32) - 3,
        "rows of many sizes": bell * np.exp(rng.standard_normal((128, 1))).astype(np.float32),
        "groups of many sizes": bell
        * np.exp(rng.standard_normal((128, 16))).astype(np.float32).repeat(16, 1),
        "mostly zeros": np.where(rng.random(bell.shape) < 0.9, np.float32(0), bell),
        "integers": rng.integers(-3, 4, bell.shape).astype(np.float32),
        "constant": np.full_like(bell, 0.37),
        "zeros": np.zeros_like(bell),
    }
    for path in (smollm2_path, gemma3_path):
        with GgufFile(path) as file:
            for name in ("blk.0.ffn_down.weight", "blk.7.attn_k.weight", "blk.9.attn_output.weight"):
                found[f"{path.name} {name}"] = file.dequantize(name).reshape(-1, 64)[:512].reshape(-1, 256)
    return found


def ggml_weights(values: NDArray[np.float64], name: str) -> NDArray[np.float64]:
    """By which ggml multiplies squares of errors (quantize_row_*_ref of ggml-quants.c)."""
    if name in ("Q3_K", "Q6_K"):
        return values**2
    if name == "Q2_K":
        return abs(values)
    groups = values.reshape(-1, GROUPS[name])
    return (np.sqrt((groups**2).mean(1, keepdims=True)) + abs(groups)).reshape(values.shape)


@pytest.mark.parametrize("name", GROUPS)
def test_no_further_from_the_weights_than_ggml(
    name: str, pool: ThreadPool, tensors: dict[str, NDArray[np.float32]]
) -> None:
    for kind, values in tensors.items():
        exact = values.astype(np.float64)
        ours = ggml.dequantize(quantize(pool, values.view(np.uint8), "F32", name), name)
        theirs = ggml.dequantize(ggml.quantize(values, name, has_importance=False), name)
        for weights in (ggml_weights(exact, name), np.ones_like(exact)):
            our_error = (weights * (ours - exact) ** 2).sum()
            assert our_error <= (weights * (theirs - exact) ** 2).sum(), kind


@pytest.mark.parametrize("name", GROUPS)
def test_the_same_on_every_instruction_set_and_in_every_place(name: str, pool: ThreadPool) -> None:
    rng = np.random.default_rng(1)
    values = rng.standard_normal((2100, 256)).astype(np.float32)  # more than one thread's share
    packed = quantize(pool, values.view(np.uint8), "F32", name)
    for isa in cpu_info().isas:
        few = quantize(pool, values[:99].view(np.uint8), "F32", name, isa)
        np.testing.assert_array_equal(few, packed[:99], isa)
    for row in (0, 1, 2047, 2048, 2099):
        alone = quantize(pool, values[row : row + 1].view(np.uint8), "F32", name)
        np.testing.assert_array_equal(alone[0], packed[row])


@pytest.mark.parametrize("name", GROUPS)
def test_scales_are_finite_whatever_comes(name: str, pool: ThreadPool) -> None:
    rng = np.random.default_rng(2)
    bits = rng.integers(0, 1 << 32, (300, 256), dtype=np.uint32).view(np.float32)
    tiny = (rng.integers(0, 1 << 12, (20, 256), dtype=np.uint32)).view(np.float32)
    huge = np.full((4, 256), 3e38, np.float32)
    values = np.concatenate([bits, tiny, huge, -huge, np.full((2, 256), np.nan, np.float32)])
    packed = quantize(pool, values.view(np.uint8), "F32", name)
    for at in HALVES[name]:
        scales = np.ascontiguousarray(packed[:, at : at + 2]).view(np.float16)
        assert np.isfinite(scales).all()
    assert not np.any(ggml.dequantize(packed[300:320], name))
