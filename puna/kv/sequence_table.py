"""The block table of one sequence."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from puna.kv.block_pool import BlockId, BlockPool, ContentIndex
from puna.kv.blocks import BLOCK_TOKENS, blocks_for

MoveKv = Callable[[NDArray[np.int32], NDArray[np.int32], int, int, int], None]
"""Copies KV: (source blocks, destination blocks, source_begin, destination_begin, num_tokens).

Both tables are int32 [num_blocks]; the begins are positions in the sequences that they belong to. The keys
are rotated by destination_begin - source_begin positions. Token by token, ascending: tables may share blocks
if the destination lies before the source.
"""


class SequenceTable:
    """The blocks that hold a sequence's KV: token at position p lies in entry p // BLOCK_TOKENS.

    Holds one reference to each of them. Only full blocks are ever shared, by adopt() and fork(); all
    operations leave whatever holds the next token with this table alone.
    """

    def __init__(self, pool: BlockPool) -> None:
        self._pool = pool
        self._blocks: list[BlockId] = []
        # The same ids for the device: copied into a batch at every step, so kept as an array.
        self._array: NDArray[np.int32] = np.empty(8, dtype=np.int32)

    @property
    def num_blocks(self) -> int:
        return len(self._blocks)

    @property
    def blocks(self) -> Sequence[BlockId]:
        return self._blocks

    @property
    def array(self) -> NDArray[np.int32]:
        """[num_blocks]"""
        return self._array[: len(self._blocks)]

    @property
    def block_bytes(self) -> int:
        """What BLOCK_TOKENS tokens take, at most."""
        return self._pool.block_bytes

    @property
    def held_bytes(self) -> int:
        return len(self._blocks) * self._pool.block_bytes

    def missing_bytes(self, num_tokens: int) -> int:
        """What grow() would have to take."""
        return max(blocks_for(num_tokens) - len(self._blocks), 0) * self._pool.block_bytes

    def grow(self, num_tokens: int) -> bool:
        """Makes room for the first `num_tokens` tokens; False, and nothing changed, if blocks are short."""
        missing = blocks_for(num_tokens) - len(self._blocks)
        if missing <= 0:
            return True
        blocks = self._pool.acquire(missing)
        if blocks is None:
            return False
        self.adopt(blocks)
        return True

    def adopt(self, blocks: Sequence[BlockId]) -> None:
        """Appends blocks; the caller's reference to each is now the table's."""
        start, end = len(self._blocks), len(self._blocks) + len(blocks)
        if end > len(self._array):
            self._array = np.resize(self._array, max(end, 2 * len(self._array)))
        self._array[start:end] = blocks
        self._blocks += blocks

    def replace(self, index: int, block: BlockId) -> None:
        """Swaps one entry. The references are the caller's: to `block` it has one, of the old it gets one."""
        self._blocks[index] = block
        self._array[index] = block

    def truncate(self, num_tokens: int) -> None:
        """Keeps the first `num_tokens` tokens, gives blocks wholly beyond back.

        For tokens that nobody else can know of: the block that is cut must not be shared, nor may the prefix
        cache have recorded what is cut off. Otherwise remove() is the operation.
        """
        if num_tokens % BLOCK_TOKENS and num_tokens < len(self._blocks) * BLOCK_TOKENS:
            cut = self._blocks[num_tokens // BLOCK_TOKENS]
            assert not self._pool.is_shared(cut), f"truncation within shared block {cut}"
            recorded = 0 if self._pool.cache is None else self._pool.cache.num_recorded(cut)
            assert recorded <= num_tokens % BLOCK_TOKENS, f"truncation of what is recorded of block {cut}"
        # Last first: so they leave the cache in that order, and so the next table starts on the first again.
        self._pool.release(self._blocks[blocks_for(num_tokens) :][::-1])
        del self._blocks[blocks_for(num_tokens) :]

    def release(self) -> None:
        """Gives all blocks back."""
        self.truncate(0)

    def fork(self, num_tokens: int, move: MoveKv) -> SequenceTable | None:
        """A second table with the first `num_tokens` tokens, which this one has computed.

        Full blocks are shared, the tokens of a last, partial one are copied. None if there is no block for
        them.
        """
        num_full, num_copied = divmod(num_tokens, BLOCK_TOKENS)
        fork = SequenceTable(self._pool)
        own = self._pool.acquire(1 if num_copied else 0)
        if own is None:
            return None
        shared = self._blocks[:num_full]
        self._pool.retain(shared)
        fork.adopt(shared + own)
        if num_copied:
            begin = num_full * BLOCK_TOKENS
            try:
                move(self.array, fork.array, begin, begin, num_copied)
            except BaseException:
                fork.release()
                raise
        return fork

    def remove(self, begin: int, end: int, num_tokens: int, cache: ContentIndex | None, move: MoveKv) -> bool:
        """Drops tokens [begin, end) of the first `num_tokens`; those behind them move down by end - begin.

        Blocks that change and are shared are copied, those of this table alone change in place and are
        forgotten by `cache`, whoever knew them. Whatever lies behind `num_tokens` is given back.
        False, and nothing changed, if blocks are short. If `move` raises, the table's KV is lost.

        What has moved is not what computing it would give: it must not be recorded as that.
        """
        assert 0 <= begin < end <= num_tokens, f"removal of [{begin}, {end}) of {num_tokens} tokens"
        first, kept = begin // BLOCK_TOKENS, blocks_for(num_tokens - (end - begin))
        shared = [i for i in range(first, kept) if self._pool.is_shared(self._blocks[i])]
        fresh = self._pool.acquire(len(shared))
        if fresh is None:
            return False
        if cache is not None:
            for index in range(first, kept):
                if not self._pool.is_shared(self._blocks[index]):
                    cache.forget(self._blocks[index])
        before, replaced = self.array.copy(), [self._blocks[index] for index in shared]
        for index, block in zip(shared, fresh, strict=True):
            self.replace(index, block)
        try:
            if first in shared:  # what stays at the start of the first block
                move(before, self.array, first * BLOCK_TOKENS, first * BLOCK_TOKENS, begin % BLOCK_TOKENS)
            if end < num_tokens:
                move(before, self.array, end, begin, num_tokens - end)
        finally:
            self._pool.release(replaced[::-1])
        self.truncate(num_tokens - (end - begin))
        return True
