"""A session's blocks on their way to or from a file, in a thread of its own, while the engine goes on."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from puna.backends.base import BlockMemory
from puna.kv import SequenceTable
from puna.kv.checkpoint import Checkpoint, CheckpointError, CheckpointHeader, write_checkpoint


class HeldBlocks:
    """Blocks that two threads know: one copies them, the engine's may take them back between two copies.

    No copy waits for a disk, so neither does the engine.
    """

    def __init__(self, memory: BlockMemory, table: SequenceTable) -> None:
        self.table = table
        self._memory = memory
        self._lock = threading.Lock()
        self._is_held = True

    def copy_out(self, index: int) -> NDArray[np.uint8]:
        """[block_bytes]. Raises CheckpointError if the engine has taken the blocks back."""
        with self._lock:
            self.require_held()
            return self._memory.read(self.table.blocks[index])

    def copy_in(self, index: int, source: NDArray[np.uint8]) -> None:
        """Raises CheckpointError if the engine has taken the blocks back."""
        with self._lock:
            self.require_held()
            self._memory.write(self.table.blocks[index], source)

    def take_back(self) -> None:
        """Releases the blocks; by the engine's thread."""
        with self._lock:
            self._is_held = False
            self.table.release()

    def require_held(self) -> None:
        """Raises CheckpointError."""
        if not self._is_held:
            raise CheckpointError("given up: running requests needed the memory, or the model was unloaded")


@dataclass(frozen=True, slots=True, eq=False)
class SessionSave:
    """run() writes the file; what the session becomes meanwhile does not matter."""

    header: CheckpointHeader
    tokens: NDArray[np.int32]
    blocks: HeldBlocks

    @property
    def model_id(self) -> str:
        return self.header.kv.model_id

    def run(self, descriptor: int, key: bytes) -> None:
        """Fills an empty file; see write_checkpoint(). Raises CheckpointError."""
        write_checkpoint(descriptor, key, self.header, self.tokens, self._copies())

    def _copies(self) -> Iterator[NDArray[np.uint8]]:
        return map(self.blocks.copy_out, range(self.header.num_blocks))


@dataclass(slots=True, eq=False)
class SessionLoad:
    """run() reads the tokens, and fills the blocks, which nobody else knows yet."""

    model_id: str
    name: str
    checkpoint: Checkpoint
    blocks: HeldBlocks
    tokens: NDArray[np.int32] = field(init=False)

    @property
    def namespace(self) -> str:
        return self.checkpoint.header.namespace

    def run(self) -> None:
        """Raises CheckpointError."""
        self.tokens = self.checkpoint.read_tokens()
        for index, block in enumerate(self.checkpoint.blocks()):
            self.blocks.copy_in(index, block)


Transfer = SessionSave | SessionLoad
