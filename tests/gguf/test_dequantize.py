"""Every format gives, to the bit, the floats of ggml's reference."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest
from numpy.typing import NDArray

from puna.gguf import GgufFile
from tests import ggml
from tests.gguf.encode import Tensor, gguf_bytes

pytestmark = pytest.mark.oracle

TYPES = gguf.GGMLQuantizationType
# Where each format keeps half floats within a block.
HALVES = {
    "F16": [0],
    "Q4_0": [0],
    "Q4_1": [0, 2],
    "Q5_0": [0],
    "Q5_1": [0, 2],
    "Q8_0": [0],
    "Q2_K": [80, 82],
    "Q3_K": [108],
    "Q4_K": [0, 2],
    "Q5_K": [0, 2],
    "Q6_K": [208],
    "IQ4_NL": [0],
    "IQ4_XS": [0],
    "IQ1_S": [0],
    "IQ2_XXS": [0],
    "IQ2_XS": [0],
    "IQ2_S": [0],
    "IQ3_XXS": [0],
    "IQ3_S": [0],
    "TQ1_0": [52],
    "TQ2_0": [64],
    "Q1_0": [0],
    "Q2_0": [0],
}
FORMATS = ["F32", "BF16", "MXFP4", "NVFP4", "IQ1_M", *HALVES]
# What the gguf package does not know; ggml itself does.
ONLY_GGML = ("Q1_0", "Q2_0")


def type_number(name: str) -> int:
    return ggml.TYPES[name] if name in ONLY_GGML else TYPES[name]


def block_size(name: str) -> tuple[int, int]:
    return ggml.block_size(name) if name in ONLY_GGML else gguf.GGML_QUANT_SIZES[TYPES[name]]


def reference(name: str, blocks: NDArray[np.uint8]) -> NDArray[np.float32]:
    if name in ONLY_GGML:
        return ggml.dequantize(blocks, name)
    with np.errstate(over="ignore"):  # the largest scales of MXFP4
        return gguf.quants.dequantize(blocks, TYPES[name])


def random_blocks(name: str, count: int, seed: int = 0) -> NDArray[np.uint8]:
    """Any bytes are a valid block, except that scales are kept finite: NaNs have no one bit pattern."""
    rng = np.random.default_rng(seed)
    size = block_size(name)[1]
    blocks = rng.integers(0, 256, (count, size), dtype=np.uint8)
    for at in HALVES.get(name, []):
        half = np.ascontiguousarray(blocks[:, at : at + 2]).view(np.float16)
        half[~np.isfinite(half)] = np.float16(-0.0)
        blocks[:, at : at + 2] = half.view(np.uint8)
    if name in ("F32", "BF16", "IQ1_M"):  # IQ1_M spreads a half float, and ends with its highest bits
        blocks[:, -1] &= 0xBF  # exponents below the largest
    return blocks


def write(path: Path, name: str, blocks: NDArray[np.uint8], shape: tuple[int, ...]) -> Path:
    path.write_bytes(gguf_bytes(tensors=[Tensor("w", shape, type_number(name))], data=blocks.tobytes()))
    return path


@pytest.mark.parametrize("name", FORMATS)
def test_dequantized_as_by_the_reference(name: str, tmp_path: Path) -> None:
    elements, _ = block_size(name)
    blocks = random_blocks(name, 6 * 512)
    with GgufFile(write(tmp_path / "a.gguf", name, blocks, (6 * elements, 512))) as file:
        ours = file.dequantize("w")
    theirs = reference(name, blocks.reshape(512, -1))
    assert ours.shape == (512, 6 * elements)
    np.testing.assert_array_equal(ours.view(np.uint32), theirs.view(np.uint32))


def test_every_half_float_as_by_numpy(tmp_path: Path) -> None:
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    path = write(tmp_path / "a.gguf", "F16", halves.view(np.uint8), (1 << 16,))
    ours = GgufFile(path).dequantize("w")
    np.testing.assert_array_equal(ours, halves.astype(np.float32))  # takes NaNs as equal
    np.testing.assert_array_equal(np.signbit(ours), np.signbit(halves))


@pytest.mark.parametrize("name", [*(type_.name for type_ in TYPES), "Q2_0"])
def test_sizes_are_those_of_the_reference(name: str, tmp_path: Path) -> None:
    elements, num_bytes = block_size(name)
    blocks = np.zeros((15, num_bytes), np.uint8)
    file = GgufFile(write(tmp_path / "a.gguf", name, blocks, (3 * elements, 5)))
    assert file.tensors["w"].type == name
    assert file.tensors["w"].num_bytes == 15 * num_bytes


def test_real_model_as_by_the_reference(smollm2_path: Path) -> None:
    reader = gguf.GGUFReader(smollm2_path)
    with GgufFile(smollm2_path) as file:
        assert list(file.tensors) == [tensor.name for tensor in reader.tensors]
        small = [tensor for tensor in reader.tensors if tensor.n_elements < 1e6]
        for tensor in small[:12]:
            info = file.tensors[tensor.name]
            assert info.shape == tuple(tensor.shape)
            assert info.offset == tensor.data_offset
            theirs = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
            np.testing.assert_array_equal(file.dequantize(tensor.name), theirs)
