"""Random weights of every type, packed as in a GGUF file, and what they stand for."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
from gguf import GGMLQuantizationType as QuantizationType
from numpy.typing import NDArray

FLOAT_TYPES = ("F32", "F16", "BF16")
BLOCK32_TYPES = ("Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "IQ4_NL", "MXFP4")
BLOCK256_TYPES = ("Q4_K", "Q5_K", "Q6_K", "Q2_K", "Q3_K", "IQ4_XS")
TYPES = (*FLOAT_TYPES, *BLOCK32_TYPES, *BLOCK256_TYPES)

# Byte offsets of the half floats in a block: any other byte may have any value.
HALF_FLOATS = {
    "Q8_0": [0], "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "IQ4_NL": [0], "MXFP4": [],
    "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "Q2_K": [80, 82], "Q3_K": [108], "IQ4_XS": [0],
}  # fmt: skip


def columns(weight_type: str) -> tuple[int, ...]:
    """Widths to test: within one chunk of the kernels, over several, and as odd as the type allows."""
    if weight_type in FLOAT_TYPES:
        return (5, 32, 300)
    return (32, 96, 1184) if weight_type in BLOCK32_TYPES else (256, 768, 1280)


def random_weight(
    weight_type: str, rows: int, cols: int, seed: int = 0, fill: int | None = None
) -> NDArray[np.uint8]:
    """[rows, bytes of a row]. Blocks hold random bytes, or `fill`, beside scales of either sign."""
    rng = np.random.default_rng(seed)
    if weight_type in FLOAT_TYPES:
        values = rng.standard_normal((rows, cols)).astype(np.float32)
        if weight_type == "BF16":
            return (values.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
        return values.astype(np.float16 if weight_type == "F16" else np.float32).view(np.uint8)
    values_per_block, block_bytes = gguf.GGML_QUANT_SIZES[QuantizationType[weight_type]]
    blocks = rng.integers(0, 256, (rows, cols // values_per_block, block_bytes), dtype=np.uint8)
    if fill is not None:
        blocks[:] = fill
    for offset in HALF_FLOATS[weight_type]:
        halves = rng.uniform(-0.02, 0.02, (*blocks.shape[:2], 1)).astype(np.float16)
        blocks[:, :, offset : offset + 2] = halves.view(np.uint8)
    if weight_type == "MXFP4":
        blocks[:, :, 0] = rng.integers(118, 130, blocks.shape[:2])  # exponents
    return blocks.reshape(rows, -1)


def values(weight_type: str, packed: NDArray[np.uint8]) -> NDArray[np.float64]:
    return gguf.quants.dequantize(packed, QuantizationType[weight_type]).astype(np.float64)


def write_weights(path: Path, weight_type: str, tensors: dict[str, NDArray[np.uint8]]) -> Path:
    writer = gguf.GGUFWriter(path, "test")
    for name, packed in tensors.items():
        writer.add_tensor(name, packed, raw_dtype=QuantizationType[weight_type])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
