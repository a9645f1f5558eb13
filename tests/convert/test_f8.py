"""Weights in F8 are multiplied by their scales: of a matrix, its rows, its blocks, each expert."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from puna.convert.errors import ConversionError
from puna.convert.safetensors import convert_safetensors
from puna.gguf import GgufFile
from tests.convert.converting import convert, files_in
from tests.convert.directories import DIRECTORIES, random_weights, safetensors, to_bf16, write_directory

pytestmark = pytest.mark.native

TINY = DIRECTORIES["qwen3moe"]
EXPERTS, ROWS, WIDTH = 7, 128, 96
LAYER = "model.layers.0."
Values = NDArray[np.float32]


def number(code: int) -> float:
    exponent, mantissa = code >> 3 & 15, (code & 7) / 8
    return (-1) ** (code >> 7) * ((1 + mantissa) * 2.0 ** (exponent - 7) if exponent else mantissa / 64)


def write(directory: Path, name: str, codes: NDArray[np.uint8], scales: dict[str, Values]) -> None:
    weights = {
        name: values
        for name, values in random_weights(TINY).items()
        if not (name.startswith(f"{LAYER}mlp.experts.") and "down" not in name)
    }
    weights.pop(name, None)
    write_directory(directory, TINY, weights)
    stored = {name: ("BF16", to_bf16(values)) for name, values in weights.items()}
    more = {name: ("F8_E4M3", codes)} | {name: ("F32", values) for name, values in scales.items()}
    (directory / "model.safetensors").write_bytes(safetensors(stored | more))


@pytest.mark.parametrize("ending", ["_scale_inv", ".weight_scale"])
@pytest.mark.parametrize(
    ("shape", "block"),
    [
        ((EXPERTS, 2, 2), (64, 64)),  # the last columns' blocks are half as large
        ((EXPERTS, ROWS, 1), (1, WIDTH)),
        ((EXPERTS, 1, 1), (ROWS, WIDTH)),
        ((EXPERTS,), (ROWS, WIDTH)),
        ((EXPERTS, ROWS), (1, WIDTH)),
        ((1,), (ROWS, WIDTH)),
    ],
)
def test_experts_in_one_tensor(shape: tuple[int, ...], block: tuple[int, int], ending: str, tmp_path: Path):
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 120, (EXPERTS, ROWS, WIDTH), np.uint8) | rng.choice([0, 128], (EXPERTS, ROWS, 1))
    scales = np.exp2(rng.integers(-4, 4, shape)).astype(np.float32)
    name = f"{LAYER}mlp.experts.gate_up_proj"
    write(tmp_path / "in", name, codes, {name + ending: scales})
    convert(convert_safetensors, files_in(tmp_path / "in"), tmp_path / "out.gguf")
    grid = scales.reshape(-1, -(-ROWS // block[0]), -(-WIDTH // block[1]))
    factors = np.repeat(np.repeat(grid, block[0], 1), block[1], 2)[:, :ROWS, :WIDTH]
    expected = np.vectorize(number)(codes) * factors
    with GgufFile(tmp_path / "out.gguf") as file:
        for part, half in (("gate", slice(0, 64)), ("up", slice(64, 128))):
            made = file.dequantize(f"blk.0.ffn_{part}_exps.weight").reshape(EXPERTS, 64, WIDTH)
            np.testing.assert_array_equal(made, expected[:, half])


@pytest.mark.parametrize(
    ("scales", "message"),
    [
        ({}, r"gate_up_proj' has no scale"),
        ({"_scale_inv": (EXPERTS - 1, 2, 2)}, r"gate_up_proj_scale_inv' does not fit the tensor"),
        ({"_scale_inv": (EXPERTS, 5, 2)}, r"gate_up_proj_scale_inv' does not fit the tensor"),
        ({"_scale_inv": (EXPERTS, 2, 2), ".bias_scale": (1,)}, r"gate_up_proj.bias_scale' is not known"),
    ],
)
def test_scales_that_do_not_fit(scales: dict[str, tuple[int, ...]], message: str, tmp_path: Path):
    name = f"{LAYER}mlp.experts.gate_up_proj"
    given = {name + ending: np.ones(shape, np.float32) for ending, shape in scales.items()}
    write(tmp_path / "in", name, np.zeros((EXPERTS, ROWS, WIDTH), np.uint8), given)
    with pytest.raises(ConversionError, match=message):
        convert(convert_safetensors, files_in(tmp_path / "in"), tmp_path / "out.gguf")
