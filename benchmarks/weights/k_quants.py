"""Q4_K and Q6_K, which the `gguf` package can read but not write. Plain minimum and maximum scales: the files
are for measuring speed, and need only be sane models. Formats: ggml's block_q4_K and block_q6_K.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

BLOCK = 256
Q4_K_BYTES, Q6_K_BYTES = 144, 210


def quantize_q4_k(x: NDArray[np.float32]) -> NDArray[np.uint8]:
    """x [rows, cols], cols a multiple of 256; returns [rows, cols / 256 * 144]."""
    values = x.reshape(-1, 8, 32)
    minimum = np.minimum(values.min(axis=2), 0)  # a block is d * scale * q - dmin * min, q in 0..15
    scale = (values.max(axis=2) - minimum) / 15
    d, scales = _to_six_bits(scale)
    dmin, mins = _to_six_bits(-minimum)
    step = (d[:, None] * scales)[:, :, None]
    offset = (dmin[:, None] * mins)[:, :, None]
    q = np.rint(np.divide(values + offset, step, out=np.zeros_like(values), where=step > 0))
    q8 = q.clip(0, 15).astype(np.uint8).reshape(-1, 4, 2, 32)
    nibbles = (q8[:, :, 0] | (q8[:, :, 1] << 4)).reshape(-1, 128)
    halves = np.stack([d, dmin], axis=1).astype(np.float16).view(np.uint8)
    return _rows(x, np.concatenate([halves, _pack_six_bits(scales, mins), nibbles], axis=1))


def quantize_q6_k(x: NDArray[np.float32]) -> NDArray[np.uint8]:
    """x [rows, cols], cols a multiple of 256; returns [rows, cols / 256 * 210]."""
    values = x.reshape(-1, 16, 16)
    scale = np.abs(values).max(axis=2) / 31  # a block is d * scale * (q - 32), q in 0..63, scale in -128..127
    d = (scale.max(axis=1) / 127).astype(np.float16).astype(np.float32)
    scales = np.rint(_divide(scale, d[:, None])).clip(0, 127)
    step = (d[:, None] * scales)[:, :, None]
    q = np.rint(np.divide(values, step, out=np.zeros_like(values), where=step > 0)).clip(-32, 31) + 32
    q8 = q.astype(np.uint8).reshape(-1, 2, 4, 32)  # of each half: four runs of 32
    low = np.stack([(q8[:, :, i] & 15) | ((q8[:, :, i + 2] & 15) << 4) for i in (0, 1)], axis=2)
    high = sum((q8[:, :, i] >> 4) << np.uint8(2 * i) for i in range(4))
    blocks = [
        low.reshape(-1, 128),
        np.asarray(high).reshape(-1, 64),
        scales.astype(np.int8).view(np.uint8),
        d.astype(np.float16)[:, None].view(np.uint8),
    ]
    return _rows(x, np.concatenate(blocks, axis=1))


def _to_six_bits(x: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """x [blocks, 8], not negative, as (d, integers 0..63): x ~ d * integers; d is a half float's value."""
    d = (x.max(axis=1) / 63).astype(np.float16).astype(np.float32)
    return d, np.rint(_divide(x, d[:, None])).clip(0, 63)


def _divide(x: NDArray[np.float32], y: NDArray[np.float32]) -> NDArray[np.float32]:
    """x / y, 0 where y is 0."""
    return np.divide(x, y, out=np.zeros_like(x), where=y > 0)


def _pack_six_bits(scales: NDArray[np.float32], mins: NDArray[np.float32]) -> NDArray[np.uint8]:
    """[blocks, 8] each, to [blocks, 12]: the first four whole, the others in nibbles and the upper bits."""
    s, m = scales.astype(np.uint8), mins.astype(np.uint8)
    first_scales = s[:, :4] | ((s[:, 4:] >> 4) << 6)
    first_mins = m[:, :4] | ((m[:, 4:] >> 4) << 6)
    nibbles = (s[:, 4:] & 15) | ((m[:, 4:] & 15) << 4)
    return np.concatenate([first_scales, first_mins, nibbles], axis=1)


def _rows(x: NDArray[np.float32], blocks: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return np.ascontiguousarray(blocks).reshape(x.shape[0], -1)
