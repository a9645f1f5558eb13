"""What a cache of each type keeps of keys and values, and what attention makes of queries, in numpy."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

KV_TYPES = ["f16", "f32", "q8_0", "q4_0"]
QUANTIZED = ["q8_0", "q4_0"]
GROUP = 32


def grouped(x: NDArray[np.float32], head_dim: int) -> NDArray[np.float32]:
    """[n, heads * head_dim] -> [n, heads, groups, 32], zeros behind the last value of a head."""
    heads = x.reshape(len(x), -1, head_dim)
    padded = np.pad(heads, ((0, 0), (0, 0), (0, -head_dim % GROUP)))
    return padded.reshape(*heads.shape[:2], -1, GROUP)


def rounded(x: NDArray[np.float32], kv_type: str) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """(integers, scales [..., 1] before their own rounding) of groups in the last axis."""
    one = np.float32(1)
    if kv_type == "q8_0":
        scale = np.abs(x).max(-1, keepdims=True) / np.float32(127)
        inverse = np.divide(one, scale, out=np.zeros_like(scale), where=scale != 0)
        return np.rint(x * inverse).astype(np.int64), scale
    high, low = x.max(-1, keepdims=True), x.min(-1, keepdims=True)
    scale = np.where(high > -low, high, low) / np.float32(-8)
    inverse = np.divide(one, scale, out=np.zeros_like(scale), where=scale != 0)
    return np.clip(x * inverse + np.float32(8.5), 0, 15).astype(np.int64) - 8, scale


def stored(x: NDArray[np.float32], head_dim: int, kv_type: str) -> NDArray[np.float64]:
    """Keys or values [n, heads * head_dim] as they come back from the cache."""
    if kv_type == "f32":
        return x.astype(float)
    if kv_type == "f16":
        return x.astype(np.float16).astype(float)
    integers, scales = rounded(grouped(x, head_dim), kv_type)
    return _flat(integers * scales.astype(np.float16).astype(float), head_dim)


def query(x: NDArray[np.float32], head_dim: int, kv_type: str) -> NDArray[np.float64]:
    """Queries as they meet the keys: quantized keys are multiplied with rounded queries."""
    if kv_type not in QUANTIZED:
        return x.astype(float)
    integers, scales = rounded(grouped(x, head_dim), "q8_0")
    return _flat(integers * scales.astype(float), head_dim)


def _flat(groups: NDArray[np.float64], head_dim: int) -> NDArray[np.float64]:
    n, heads = groups.shape[:2]
    return groups.reshape(n, heads, -1)[..., :head_dim].reshape(n, -1)
