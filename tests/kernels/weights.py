"""Random weights of every type, packed as in a GGUF file, and what they stand for."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
from numpy.typing import NDArray

from tests import ggml
from tests.gguf.encode import Tensor, gguf_bytes

FLOAT_TYPES = ("F32", "F16", "BF16")
BLOCK32_TYPES = ("Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "IQ4_NL", "MXFP4")
BLOCK256_TYPES = ("Q4_K", "Q5_K", "Q6_K", "Q2_K", "Q3_K", "IQ4_XS")
IQ_TYPES = ("IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S")
OTHER_TYPES = ("TQ1_0", "TQ2_0", "NVFP4", "Q1_0", "Q2_0")
TYPES = (*FLOAT_TYPES, *BLOCK32_TYPES, *BLOCK256_TYPES, *IQ_TYPES, *OTHER_TYPES)


ALIGNMENT = 32  # of tensors in the file

# Byte offsets of the half floats in a block: any other byte may have any value.
HALF_FLOATS = {
    "Q8_0": [0], "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "IQ4_NL": [0], "MXFP4": [],
    "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "Q2_K": [80, 82], "Q3_K": [108], "IQ4_XS": [0],
    "IQ1_S": [0], "IQ1_M": [], "IQ2_XXS": [0], "IQ2_XS": [0], "IQ2_S": [0], "IQ3_XXS": [0], "IQ3_S": [0],
    "TQ1_0": [52], "TQ2_0": [64], "NVFP4": [], "Q1_0": [0], "Q2_0": [0],
}  # fmt: skip


def columns(weight_type: str) -> tuple[int, ...]:
    """Widths to test: within one chunk of the kernels, over several, and as odd as the type allows."""
    if weight_type in FLOAT_TYPES:
        return (5, 32, 300)
    block = ggml.block_size(weight_type)[0]
    return (32, 96, 1184) if block == 32 else (128, 384, 1152) if block <= 128 else (256, 768, 1280)


def random_weight(
    weight_type: str, rows: int, cols: int, seed: int = 0, fill: int | None = None, largest: float = 0.02
) -> NDArray[np.uint8]:
    """[rows, bytes of a row]. Blocks hold random bytes, or `fill`, beside scales of -largest..largest."""
    rng = np.random.default_rng(seed)
    if weight_type in FLOAT_TYPES:
        values = rng.standard_normal((rows, cols)).astype(np.float32)
        if weight_type == "BF16":
            return (values.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
        return values.astype(np.float16 if weight_type == "F16" else np.float32).view(np.uint8)
    values_per_block, block_bytes = ggml.block_size(weight_type)
    blocks = rng.integers(0, 256, (rows, cols // values_per_block, block_bytes), dtype=np.uint8)
    if fill is not None:
        blocks[:] = fill
    for offset in HALF_FLOATS[weight_type]:
        halves = rng.uniform(-largest, largest, (*blocks.shape[:2], 1)).astype(np.float16)
        blocks[:, :, offset : offset + 2] = halves.view(np.uint8)
    if weight_type == "MXFP4":
        blocks[:, :, 0] = rng.integers(118, 130, blocks.shape[:2])  # exponents
    if weight_type == "IQ1_M":  # a half float in the upper halves of four bytes
        halves = rng.uniform(-largest, largest, blocks.shape[:2]).astype(np.float16).view(np.uint16)
        for i in range(4):
            blocks[:, :, 49 + 2 * i] = blocks[:, :, 49 + 2 * i] & 15 | (halves >> 4 * i & 15) << 4
    return blocks.reshape(rows, -1)


def values(weight_type: str, packed: NDArray[np.uint8]) -> NDArray[np.float64]:
    if weight_type in FLOAT_TYPES:
        return gguf.quants.dequantize(packed, gguf.GGMLQuantizationType[weight_type]).astype(np.float64)
    return ggml.dequantize(packed, weight_type).astype(np.float64)


def write_weights(path: Path, weight_type: str, tensors: dict[str, NDArray[np.uint8]]) -> Path:
    """The gguf package cannot write types that it does not know."""
    if weight_type in FLOAT_TYPES:
        number, (block_elements, block_bytes) = (
            gguf.GGMLQuantizationType[weight_type],
            (1, 2 + 2 * (weight_type == "F32")),
        )
    else:
        number, (block_elements, block_bytes) = ggml.TYPES[weight_type], ggml.block_size(weight_type)
    infos, data = [], bytearray()
    for name, packed in tensors.items():
        rows, row_bytes = packed.shape
        infos.append(Tensor(name, (row_bytes // block_bytes * block_elements, rows), number, len(data)))
        data += packed.tobytes()
        data += bytes(-len(data) % ALIGNMENT)
    path.write_bytes(gguf_bytes(tensors=infos, data=bytes(data)))
    return path
