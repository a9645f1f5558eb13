"""A tiny model's wiring at a size where weights, not calls, take the time."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from puna._native import NativeError, ThreadPool
from puna._native import quantize as quantize_rows
from tests.tiny import Tiny, weights, write_tiny

_WEIGHT_TYPES = ("Q4_K", "Q8_0")  # the second where rows are no whole numbers of the first one's blocks
_WIDTH, _HEADS = 16, 4
_HEAD_DIM = 4
_FACTORS = {
    "attention.key_length": _HEAD_DIM,
    "attention.key_length_mla": _HEAD_DIM,
    "attention.key_length_swa": _HEAD_DIM,
    "attention.kv_lora_rank": _HEAD_DIM,
    "attention.q_lora_rank": _WIDTH,
    "attention.value_length": _HEAD_DIM,
    "attention.value_length_mla": _HEAD_DIM,
    "attention.value_length_swa": _HEAD_DIM,
    "dense_2_feat_in": _WIDTH,
    "dense_2_feat_out": _WIDTH,
    "dense_3_feat_in": _WIDTH,
    "dense_3_feat_out": _WIDTH,
    "expert_feed_forward_length": _WIDTH,
    "expert_shared_feed_forward_length": _WIDTH,
    "feed_forward_length": _WIDTH,
    "kda.head_dim": _HEAD_DIM,
    "moe_latent_size": _WIDTH,
    "rope.dimension_count": _HEAD_DIM,
    "rope.dimension_count_swa": _HEAD_DIM,
    "ssm.inner_size": _HEADS * _HEAD_DIM,
    "ssm.state_size": _HEAD_DIM,
    "ssm.time_step_rank": _HEADS,
}
"""What grows with the model; all else is a count of layers or experts, or a constant."""
_LISTED = {"attention.head_count": _HEADS, "attention.head_count_kv": _HEADS}
"""Where it is a list with a number for each layer, and not of latents, which have one KV head."""
_RANDOM_ROWS = 64


def write_enlarged(path: Path, tiny: Tiny) -> str:
    """Rows of matrices grow by 16, heads by 4 and their dimensions by 4. The type of its weights.

    Raises ValueError for rows that neither type can hold.
    """
    large = replace(
        tiny,
        width=tiny.width * _WIDTH,
        heads=tiny.heads * _HEADS,
        kv_heads=tiny.kv_heads * _HEADS,
        head_dim=tiny.head_dim * _HEAD_DIM,
        ffn=tiny.ffn * _WIDTH,
        metadata={key: _grown(tiny, key, value) for key, value in tiny.metadata.items()},
    )
    for weight_type in _WEIGHT_TYPES:
        with suppress(NativeError):
            write_tiny(path, large, weight_type, quantize=_quantize, values=_values)
            return weight_type
    raise ValueError(f"rows of {tiny.architecture} cannot be quantized")


def _values(name: str, shape: tuple[int, ...], rng: np.random.Generator) -> NDArray[np.float32]:
    """Matrices repeat their first rows: drawing and quantizing all would take longer than the measurement."""
    if not weights.is_matrix(name, shape):
        return weights.values(name, shape, rng)
    return np.resize(weights.values(name, (_RANDOM_ROWS, shape[-1]), rng), shape)


def _quantize(weight: NDArray[np.float32], weight_type: str) -> NDArray[np.uint8]:
    rows = weight.reshape(-1, weight.shape[-1])[:_RANDOM_ROWS]
    packed = quantize_rows(ThreadPool(1), rows.view(np.uint8), "F32", weight_type)
    return np.resize(packed, (*weight.shape[:-1], packed.shape[-1]))


def _grown(tiny: Tiny, key: str, value: Any) -> Any:
    factor = _FACTORS.get(key, 1)
    if key == "rope.dimension_sections":
        return _sections(sum(value) * _HEAD_DIM)
    if isinstance(value, list):
        has_one_head = key == "attention.head_count_kv" and "attention.kv_lora_rank" in tiny.metadata
        factor = factor if has_one_head else _LISTED.get(key, factor)
        return value if factor == 1 else [item * factor for item in value]
    return value if factor == 1 else value * factor


def _sections(num_pairs: int) -> list[int]:
    """Of time, height and width, which take turns, so that none may have more than one over the next."""
    return [(num_pairs + 2) // 3, (num_pairs + 1) // 3, num_pairs // 3, 0]
