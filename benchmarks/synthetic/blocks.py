"""Random weights in GGUF's types: random bytes with scales that give values of the wanted deviation."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import gguf
import numpy as np
from gguf import GGMLQuantizationType
from numpy.typing import NDArray

_NUM_BLOCKS = 65521
"""Of a type, used again and again; a prime, so that no two of so many neighbouring rows are equal."""


def random_blocks(
    weight_type: GGMLQuantizationType, num_blocks: int, deviation: float, rng: np.random.Generator
) -> Iterator[NDArray[np.uint8]]:
    """num_blocks in pieces of [blocks, bytes]; their values have a mean of about 0."""
    blocks = _bytes(weight_type).copy()
    _set_scales(blocks, weight_type, deviation)
    start = int(rng.integers(_NUM_BLOCKS))
    while num_blocks:
        piece = blocks[start : start + num_blocks]
        yield piece
        num_blocks -= len(piece)
        start = 0


@cache
def _bytes(weight_type: GGMLQuantizationType) -> NDArray[np.uint8]:
    block_bytes = gguf.GGML_QUANT_SIZES[weight_type][1]
    random = np.random.default_rng(weight_type).bytes(_NUM_BLOCKS * block_bytes)
    return np.frombuffer(random, np.uint8).reshape(_NUM_BLOCKS, block_bytes)


def _set_scales(blocks: NDArray[np.uint8], weight_type: GGMLQuantizationType, deviation: float) -> None:
    match weight_type:
        case GGMLQuantizationType.Q4_K:  # d * scale * q - dmin * min, with scale, min in 0..63
            d = deviation / (32 * 4.6)
            blocks[:, 0:4] = _halves(d, 7.5 * d)
        case GGMLQuantizationType.Q5_0:  # d * (q - 16)
            blocks[:, 0:2] = _halves(deviation / 9.2)
        case GGMLQuantizationType.Q6_K:  # d * scale * (q - 32), scale in -128..127
            blocks[:, 208:210] = _halves(deviation / (74 * 18.5))
        case GGMLQuantizationType.Q8_0:  # d * q
            blocks[:, 0:2] = _halves(deviation / 74)
        case GGMLQuantizationType.MXFP4:  # 2 ** (e - 127) * q, q of 0, 0.5, 1, 1.5, 2, 3, 4, 6 and a sign
            blocks[:, 0] = round(127 + np.log2(deviation / 2.9))
        case _:
            raise AssertionError(weight_type)


def _halves(*values: float) -> NDArray[np.uint8]:
    return np.array(values, np.float16).view(np.uint8)
