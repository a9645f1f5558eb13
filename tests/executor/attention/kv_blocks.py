"""What lies in a KV block, read in numpy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tests.executor.attention.kv_types import GROUP
from tests.executor.toy import BLOCK_TOKENS

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float64]

ALIGNMENT = 64  # of K and of V


@dataclass(frozen=True)
class KvShape:
    """Of one layer."""

    kv_type: str
    kv_heads: int
    head_dim: int

    @property
    def groups(self) -> int:
        return -(-self.head_dim // GROUP)

    @property
    def value_bytes(self) -> int:
        """Of all tokens of a block, without scales."""
        if self.kv_type in ("f16", "f32"):
            return self.kv_heads * self.head_dim * BLOCK_TOKENS * (2 if self.kv_type == "f16" else 4)
        return self.kv_heads * self.groups * BLOCK_TOKENS * (GROUP if self.kv_type == "q8_0" else GROUP // 2)

    @property
    def num_bytes(self) -> int:
        """Of K, and of V."""
        scales = 2 * self.kv_heads * self.groups * BLOCK_TOKENS if self.kv_type in ("q8_0", "q4_0") else 0
        return -(-(self.value_bytes + scales) // ALIGNMENT) * ALIGNMENT

    def keys(self, data: Bytes) -> Floats:
        """[16, kv_heads * head_dim] of K's bytes in a block."""
        if self.kv_type in ("f16", "f32"):
            return self._floats(data).reshape(-1, BLOCK_TOKENS).T
        words = data[: self.value_bytes].reshape(self.kv_heads, self.groups, -1, BLOCK_TOKENS, 4)
        packed = words.transpose(3, 0, 1, 2, 4).reshape(BLOCK_TOKENS, self.kv_heads, self.groups, -1)
        integers = packed.astype(float) - 128 if self.kv_type == "q8_0" else _nibbles(packed)
        return self._scaled(integers, data)

    def values(self, data: Bytes) -> Floats:
        """[16, kv_heads * head_dim] of V's bytes in a block."""
        if self.kv_type in ("f16", "f32"):
            heads = self._floats(data).reshape(self.kv_heads, BLOCK_TOKENS, -1)
            return heads.transpose(1, 0, 2).reshape(BLOCK_TOKENS, -1)
        heads = data[: self.value_bytes].reshape(self.kv_heads, BLOCK_TOKENS, self.groups, -1)
        packed = heads.transpose(1, 0, 2, 3)
        integers = packed.view(np.int8).astype(float) if self.kv_type == "q8_0" else _nibbles(packed)
        return self._scaled(integers, data)

    def _floats(self, data: Bytes) -> Floats:
        return (
            data[: self.value_bytes].view(np.float16 if self.kv_type == "f16" else np.float32).astype(float)
        )

    def _scaled(self, integers: Floats, data: Bytes) -> Floats:
        """integers: [16, kv_heads, groups, 32]"""
        stored = data[self.value_bytes :].view(np.float16)[: self.kv_heads * self.groups * BLOCK_TOKENS]
        scales = stored.reshape(self.kv_heads, self.groups, BLOCK_TOKENS).transpose(2, 0, 1)
        heads = (integers * scales[..., None].astype(float)).reshape(BLOCK_TOKENS, self.kv_heads, -1)
        return heads[..., : self.head_dim].reshape(BLOCK_TOKENS, -1)


def _nibbles(packed: Bytes) -> Floats:
    return np.concatenate([packed & 15, packed >> 4], axis=-1).astype(float) - 8
