"""The block table of one sequence."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from puna.kv.block_pool import BlockId, BlockPool

BLOCK_TOKENS = 16
"""Tokens of KV that one block holds, in every model."""


def blocks_for(num_tokens: int) -> int:
    """Blocks that `num_tokens` tokens of one sequence need."""
    return -(-num_tokens // BLOCK_TOKENS)


class SequenceTable:
    """The blocks that hold a sequence's KV: token at position p lies in entry p // BLOCK_TOKENS."""

    def __init__(self, pool: BlockPool) -> None:
        self._pool = pool
        self._blocks: list[BlockId] = []
        # The same ids for the device: copied into a batch at every step, so kept as an array.
        self._array: NDArray[np.int32] = np.empty(8, dtype=np.int32)

    @property
    def num_blocks(self) -> int:
        return len(self._blocks)

    @property
    def array(self) -> NDArray[np.int32]:
        """[num_blocks]"""
        return self._array[: len(self._blocks)]

    def grow(self, num_tokens: int) -> bool:
        """Makes room for the first `num_tokens` tokens; False, and nothing changed, if blocks are short."""
        missing = blocks_for(num_tokens) - len(self._blocks)
        if missing <= 0:
            return True
        blocks = self._pool.acquire(missing)
        if blocks is None:
            return False
        start, end = len(self._blocks), len(self._blocks) + missing
        if end > len(self._array):
            self._array = np.resize(self._array, max(end, 2 * len(self._array)))
        self._array[start:end] = blocks
        self._blocks += blocks
        return True

    def release(self) -> None:
        """Gives all blocks back."""
        # Last first, so that the next sequence starts on the first block again.
        self._pool.release(self._blocks[::-1])
        self._blocks = []
