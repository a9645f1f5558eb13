"""Blocks on their way to and from files."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from puna.backends.base import BlockMemory
from puna.kv import BlockId, SequenceTable


class LentBlocks:
    """A table's blocks, which file threads copy from or to until the engine wants them back.

    No copy waits for a disk, so the engine, which waits for one copy at most, does not either.
    """

    def __init__(self, memory: BlockMemory, table: SequenceTable, blocks: Sequence[BlockId]) -> None:
        """blocks: those of the table's that are copied. The table is this object's to release."""
        self.table = table
        self._memory = memory
        self._blocks = list(blocks)
        self._lock = threading.Lock()
        self.is_taken_back = False

    def read(self, index: int) -> NDArray[np.uint8] | None:
        """The content [block_bytes] of one block; None if it was taken back. For file threads."""
        with self._lock:
            return None if self.is_taken_back else self._memory.read(self._blocks[index])

    def write(self, index: int, content: NDArray[np.uint8]) -> bool:
        """False if it was taken back. For file threads."""
        with self._lock:
            if not self.is_taken_back:
                self._memory.write(self._blocks[index], content)
            return not self.is_taken_back

    def take_back(self) -> None:
        """Releases the table, if that was not done before. By the engine's thread."""
        with self._lock:
            self.is_taken_back = True
        self.table.release()
