"""The memory of the toy device: it gives no views of itself, places blocks as it likes, and may run out."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import numpy as np
from numpy.typing import NDArray

from puna._native import NativeError
from puna.backends.base import BLOCK_TOKENS, DeviceOutOfMemory

_CHUNK = 64  # blocks for which there is memory together
_GARBAGE = 0xA5


class ToyDeviceMemory:
    """What all models of a device share. limit_bytes: a test may change it; None: there is no end."""

    def __init__(self, limit_bytes: int | None = None) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self.num_refused = 0

    def take(self, num_bytes: int) -> None:
        if self.limit_bytes is not None and self.used_bytes + num_bytes > self.limit_bytes:
            self.num_refused += 1
            raise DeviceOutOfMemory("the toy is full")
        self.used_bytes += num_bytes


class ToyMemory:
    """A BlockMemory. Of each token it has a value and a position, or of all tokens a state and their number;
    what lies behind those is never touched.

    Who uses a block without memory is told so, and where a block lies has nothing to do with its number.
    """

    def __init__(
        self,
        num_blocks: int,
        block_bytes: int,
        extent_blocks: int = 1,
        device: ToyDeviceMemory | None = None,
        *,
        can_shift: bool = True,
    ) -> None:
        self.num_blocks = num_blocks
        self.block_bytes = block_bytes
        self.extent_blocks = extent_blocks
        self.extent_bytes = extent_blocks * block_bytes
        self._device = device or ToyDeviceMemory()
        self._can_shift = can_shift
        self._place: dict[int, NDArray[np.uint8]] = {}  # of each block with memory
        self._free: list[NDArray[np.uint8]] = []
        self._random = Random(0)
        self._is_closed = False

    def allocate(self, extents: Sequence[int]) -> None:
        self._device.take(len(extents) * self.extent_bytes)
        for block in self._blocks(extents):
            assert block not in self._place, f"block {block} is allocated twice"
            self._place[block] = self._new_place()

    def populate(self, extents: Sequence[int]) -> None:
        assert all(block in self._place for block in self._blocks(extents))

    def prefetch(self, extent: int) -> None:
        assert extent * self.extent_blocks in self._place

    def free(self, extents: Sequence[int]) -> None:
        for block in self._blocks(extents):
            place = self._place.pop(block)
            place[:] = _GARBAGE
            self._free.append(place)
        self._device.used_bytes -= len(extents) * self.extent_bytes

    def read(self, block: int, begin: int = 0, end: int | None = None) -> NDArray[np.uint8]:
        return self._place[block][begin:end].copy()

    def write(self, block: int, content: NDArray[np.uint8], begin: int = 0) -> None:
        assert begin + len(content) <= self.block_bytes
        self._place[block][begin : begin + len(content)] = content

    def move(
        self,
        source: NDArray[np.int32],
        destination: NDArray[np.int32],
        source_begin: int,
        destination_begin: int,
        num_tokens: int,
    ) -> None:
        if source_begin != destination_begin and not self._can_shift:
            raise NativeError("cannot shift")
        for index in range(num_tokens):
            value, position = self._slot(source, source_begin + index)
            moved = value, position + destination_begin - source_begin
            self._slot(destination, destination_begin + index)[:] = moved

    def close(self) -> None:
        assert not self._is_closed
        self.free(sorted({block // self.extent_blocks for block in self._place}))
        self._is_closed = True

    def values(self, table: NDArray[np.int32], begin: int, end: int) -> NDArray[np.uint16]:
        """Of the positions [begin, end)."""
        first = begin // BLOCK_TOKENS
        blocks = [self._tokens(block) for block in table[first : -(-end // BLOCK_TOKENS)].tolist()]
        start = first * BLOCK_TOKENS
        kept = np.concatenate([*blocks, np.empty((0, 2), np.uint16)])[begin - start : end - start]
        assert (kept[:, 1] == np.arange(begin, end)).all(), "KV is not where it was computed for"
        return np.ascontiguousarray(kept[:, 0])

    def store(self, table: NDArray[np.int32], first: int, values: NDArray[np.uint16]) -> None:
        """Those of the positions from `first` on."""
        for position, value in enumerate(values, first):
            self._slot(table, position)[:] = value, position

    def state(self, block: int, num_tokens: int, empty: int) -> int:
        """That behind so many tokens. empty: the one behind none, which lies nowhere."""
        if block < 0:
            return empty
        length, state = self._state(block)
        assert length == num_tokens, f"the state behind {length} tokens is read as that behind {num_tokens}"
        return int(state)

    def store_state(self, block: int, num_tokens: int, state: int) -> None:
        self._state(block)[:] = num_tokens, state

    def spoil(self, blocks: Sequence[int]) -> None:
        """The contents of blocks are undefined for now."""
        for block in blocks:
            self._place[block][:] = _GARBAGE

    def _state(self, block: int) -> NDArray[np.uint64]:
        """[2]: number of tokens, state"""
        return self._place[block][:16].view(np.uint64)

    def _slot(self, table: NDArray[np.int32], position: int) -> NDArray[np.uint16]:
        return self._tokens(int(table[position // BLOCK_TOKENS]))[position % BLOCK_TOKENS]

    def _tokens(self, block: int) -> NDArray[np.uint16]:
        """[BLOCK_TOKENS, 2]: value, position"""
        content = self._place[block][: 4 * BLOCK_TOKENS]
        return content.view(np.uint16).reshape(BLOCK_TOKENS, 2)

    def _blocks(self, extents: Sequence[int]) -> list[int]:
        first = [extent * self.extent_blocks for extent in extents]
        return [
            block + i for block in first for i in range(self.extent_blocks) if block + i < self.num_blocks
        ]

    def _new_place(self) -> NDArray[np.uint8]:
        if not self._free:
            self._free.extend(np.full((_CHUNK, self.block_bytes), _GARBAGE, np.uint8))
            self._random.shuffle(self._free)
        return self._free.pop()
