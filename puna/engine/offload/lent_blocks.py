"""Blocks on their way to and from files."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from puna.kv import SequenceTable
from puna.kv.model_kv import ModelKv

_PIECE_BYTES = 1 << 20

GroupBlock = tuple[int, int]
"""(group of layers, block)"""


class LentBlocks:
    """Blocks that file threads copy from or to until the engine wants them back.

    No copy waits for a disk, so the engine, which waits for one of a piece at most, does not either.
    """

    def __init__(self, kv: ModelKv, blocks: Sequence[Sequence[int]], release: Callable[[], None]) -> None:
        """blocks: of each group; held until `release` is called, which this object does once."""
        self.is_taken_back = False
        self._blocks = blocks
        self._memories = kv.memories
        self._release = release
        self._lock = threading.Lock()

    @property
    def held(self) -> Iterator[GroupBlock]:
        for group, blocks in enumerate([] if self.is_taken_back else self._blocks):
            yield from ((group, block) for block in blocks)

    @property
    def held_bytes(self) -> int:
        memories = zip([] if self.is_taken_back else self._blocks, self._memories, strict=False)
        return sum(len(blocks) * memory.block_bytes for blocks, memory in memories)

    def read(self, group: int, index: int) -> NDArray[np.uint8] | None:
        """The content [block_bytes] of one block; None if it was taken back. For file threads."""
        memory = self._memories[group]
        if memory.block_bytes <= _PIECE_BYTES:
            return self._read_piece(group, index, 0, memory.block_bytes)
        content = np.empty(memory.block_bytes, np.uint8)
        for begin in range(0, len(content), _PIECE_BYTES):
            piece = self._read_piece(group, index, begin, min(begin + _PIECE_BYTES, len(content)))
            if piece is None:
                return None
            content[begin : begin + len(piece)] = piece
        return content

    def _read_piece(self, group: int, index: int, begin: int, end: int) -> NDArray[np.uint8] | None:
        with self._lock:
            if self.is_taken_back:
                return None
            return self._memories[group].read(self._blocks[group][index], begin, end)

    def write(self, group: int, index: int, content: NDArray[np.uint8]) -> bool:
        """False if it was taken back. For file threads."""
        for begin in range(0, len(content), _PIECE_BYTES):
            with self._lock:
                if self.is_taken_back:
                    return False
                piece = content[begin : begin + _PIECE_BYTES]
                self._memories[group].write(self._blocks[group][index], piece, begin)
        return True

    def take_back(self) -> None:
        """Releases them, if that was not done before. By the engine's thread."""
        with self._lock:
            was_taken_back, self.is_taken_back = self.is_taken_back, True
        if not was_taken_back:
            self._release()


def hold_blocks(kv: ModelKv, blocks: Sequence[Sequence[int]]) -> LentBlocks:
    """blocks: of each group, that somebody holds or that are cached; they get references of their own."""
    for group, ids in enumerate(blocks):
        kv.blocks.retain(group, ids)

    def release() -> None:
        for group, ids in enumerate(blocks):
            kv.blocks.release(group, ids[::-1])  # so that what builds on others goes first

    return LentBlocks(kv, blocks, release)


def blocks_from(kv: ModelKv, table: SequenceTable, firsts: Sequence[int]) -> list[list[int]]:
    """Of each group, from a first entry on, which is held; of recurrent layers the state that is held, or the
    block for a first one.
    """
    return [
        table.blocks(number) if group.is_state else table.blocks(number)[first - table.first_held(number) :]
        for number, (group, first) in enumerate(zip(kv.groups, firsts, strict=True))
    ]
