"""MXFP4 as safetensors have it: 4-bit codes in blocks of 32 and, in another tensor, a scale for each block.

A byte of `..._blocks` has two neighbours, the first in its lower half; in GGUF's blocks, which begin with the
scale, values i and i + 16 share one.
"""

from __future__ import annotations

import msgspec
import numpy as np
from numpy.typing import NDArray

from puna.convert.errors import ConversionError
from puna.convert.sources.files import Files
from puna.convert.sources.header import SourceTensor

_BLOCK_BYTES = 16
BLOCK_VALUES = 32
TYPE = "MXFP4"
BLOCKS, SCALES = "_blocks", "_scales"
"""Endings of the names of the two."""


class Mxfp4(msgspec.Struct, frozen=True):
    """Of each expert's rows, every `step`-th from `first` on."""

    blocks: SourceTensor
    """[experts, rows, blocks, 16]"""
    scales: SourceTensor
    """[experts, rows, blocks]"""
    first: int = 0
    step: int = 1

    @property
    def shape(self) -> tuple[int, int, int]:
        experts, rows, blocks, _ = self.blocks.shape
        return experts, rows // self.step, blocks * BLOCK_VALUES


def find_mxfp4(blocks: SourceTensor, scales: SourceTensor | None, step: int) -> list[Mxfp4]:
    """In `step` parts, row by row in turn. Raises ConversionError."""
    shape = blocks.shape
    is_known = blocks.dtype == "U8" and len(shape) == 4 and shape[-1] == _BLOCK_BYTES
    if scales is None or not is_known or shape[1] % step:
        raise ConversionError(f"tensor {blocks.name[:100]!r} is no tensor of MXFP4 blocks with scales")
    if scales.dtype != "U8" or scales.shape != shape[:-1]:
        raise ConversionError(f"tensor {scales.name[:100]!r} does not fit the tensor that it scales")
    return [Mxfp4(blocks, scales, first, step) for first in range(step)]


def read_expert(files: Files, part: Mxfp4, expert: int) -> NDArray[np.uint8]:
    """Its rows as GGUF has them: [rows, blocks * 17]. Raises ConversionError."""
    _, rows, blocks, _ = part.blocks.shape
    count = rows * blocks
    codes = files.bytes_at(
        part.blocks.file, part.blocks.offset + expert * count * _BLOCK_BYTES, count * _BLOCK_BYTES
    ).reshape(rows, blocks, _BLOCK_BYTES)[part.first :: part.step]
    scales = files.bytes_at(part.scales.file, part.scales.offset + expert * count, count)
    values = np.stack([codes & 15, codes >> 4], axis=-1).reshape(*codes.shape[:2], BLOCK_VALUES)
    packed = values[..., :_BLOCK_BYTES] | values[..., _BLOCK_BYTES:] << 4
    chosen = scales.reshape(rows, blocks, 1)[part.first :: part.step]
    return np.concatenate([chosen, packed], axis=-1).reshape(len(codes), -1)
