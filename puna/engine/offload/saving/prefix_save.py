"""A save: a model's cached blocks on their way to files, a few at a time."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from puna._native import PrefixNode
from puna.engine.offload.lent_blocks import GroupBlock, LentBlocks, hold_blocks
from puna.engine.offload.model_offload import ModelOffload
from puna.engine.offload.saving.save_sources import NodeSource
from puna.engine.offload.throughput import Throughput
from puna.kv import BLOCK_TOKENS
from puna.kv.files.block_files import TOKEN_BYTES, BlockFiles
from puna.kv.files.prefix_store import PrefixStore

Then = Callable[[], None]

_PAUSE_S = 0.002
_LEISURE = 3.0
"""While something is computed, the thread that writes rests for so many times as long as it works."""
_HASTE = 1.0


class PrefixSave:
    """Makes files of blocks that have none: lend() and write() by turns."""

    def __init__(
        self,
        store: PrefixStore,
        model: ModelOffload,
        files: BlockFiles,
        source: NodeSource,
        throughput: Throughput,
        clock: Callable[[], float],
        is_engine_busy: Callable[[], bool],
    ) -> None:
        """clock: seconds. is_engine_busy: then writing takes its time. Both for any thread."""
        self.model = model
        self.then: Then | None = None
        """To be called when all was written."""
        self.deadline_s: float | None = None
        """Nothing is written after that."""
        self.num_saved_tokens = 0
        self.progress = 0
        """Nodes that have their files now."""
        self.is_cut_short = False
        """It ended before all was written."""
        self.is_stuck = False
        """The disk does not answer, and is no longer waited for."""
        self.is_all = source.is_all
        """It writes all that the model has."""
        self._store = store
        self._files = files
        self._source = source
        self._throughput = throughput
        self._clock = clock
        self._is_engine_busy = is_engine_busy
        self._nodes: list[PrefixNode] = []
        self._num_written = 0
        self._lent: LentBlocks | None = None
        """Their blocks."""
        self._copies: dict[int, dict[int, NDArray[np.uint8]]] = {}
        """Of partial nodes, by number."""
        self._num_bytes = 0
        self._rested_s = 0.0
        self._rested_at_s = 0.0
        self._has_ended = False

    @property
    def held(self) -> Iterable[GroupBlock]:
        return [] if self._lent is None else self._lent.held

    @property
    def held_bytes(self) -> int:
        return 0 if self._lent is None else self._lent.held_bytes

    def lend(self) -> bool:
        """Holds some more nodes; False: there are none. By the engine's thread."""
        self.leave()
        nodes = None if self.is_over else self._source.next()
        if nodes is None:
            return False
        # Their owner may go on writing to partial blocks, behind these tokens.
        partial = [node for node in nodes if len(node.tokens) < TOKEN_BYTES * BLOCK_TOKENS]
        self._copies = {node.number: self._copy(node) for node in partial}
        self._nodes, self._num_written = nodes, 0
        groups = range(len(self._files.groups))
        blocks = [[node.blocks[group] for node in nodes if self._is_lent(node, group)] for group in groups]
        self._lent = hold_blocks(self.model.kv, blocks)
        return True

    def _copy(self, node: PrefixNode) -> dict[int, NDArray[np.uint8]]:
        """By group of layers."""
        held = zip(node.blocks, self.model.kv.groups, strict=True)
        return {
            number: group.memory.read(block)
            for number, (block, group) in enumerate(held)
            if block >= 0 and not group.is_state
        }

    def _is_lent(self, node: PrefixNode, group: int) -> bool:
        return node.blocks[group] >= 0 and group not in self._copies.get(node.number, ())

    def leave(self) -> None:
        """Gives back what was lent, whose writing has ended. By the engine's thread."""
        if self._lent is not None:
            self._lent.take_back()
            self._source.leave([] if self._has_ended else self._nodes[self._num_written :])
            self._lent = None

    def take_back(self) -> None:
        """Ends it. By the engine's thread."""
        self.is_cut_short = True
        if self._lent is not None:
            self._lent.take_back()

    @property
    def is_over(self) -> bool:
        """Whether writing has ended."""
        if self.deadline_s is not None and self._clock() >= self.deadline_s:
            self.is_cut_short = True
        return self.is_cut_short or self._has_ended

    def write(self) -> None:
        """Writes the blocks that were lent. In one thread."""
        self._rested_at_s = self._clock()
        try:
            self._write()
        except OSError as error:
            self._has_ended = True
            self._store.report("cannot save cached prefixes", error)
        if self.is_all:
            self._store.allowance.sync()
        else:
            self._store.allowance.sync_at_times()

    def _write(self) -> None:
        assert self._lent is not None
        indexes = [itertools.count() for _ in self._files.groups]
        for node in self._nodes:
            if self.is_over or not self._write_node(node, self._lent, indexes):
                return
            self._num_written += 1
            self.progress += 1

    def _write_node(self, node: PrefixNode, lent: LentBlocks, indexes: list[itertools.count[int]]) -> bool:
        """indexes: of each group's next block among those lent. False: nothing more is to be written."""
        (stored, modified_ns), is_new = self._source.place(node), False
        for group, block in enumerate(node.blocks):
            if block < 0:  # it has slid out of a window, and is gone
                continue
            copy = self._copies.get(node.number, {}).get(group)
            index = next(indexes[group]) if copy is None else 0
            self._num_bytes += self._files.file_bytes(group)
            self._has_ended |= self._num_bytes > self._store.limit_bytes  # it would take the others' place
            if self._has_ended:
                return False
            if self._files.renew(stored, node.following, modified_ns, group):
                continue
            started_s, rested_s = self._clock(), self._rested_s
            self._has_ended |= not self._store.allowance.take(self._files.file_bytes(group))
            if self._has_ended:
                return False
            content = lent.read(group, index) if copy is None else copy
            if content is None:
                return False
            if self._files.write(stored, content, node.following, modified_ns, group, self._rest):
                is_new = True
                self._has_ended = not self._store.added(self._files.file_bytes(group))
                seconds = self._clock() - started_s - (self._rested_s - rested_s)
                self._throughput.observe(self._files.file_bytes(group), seconds)
        self._source.written(node)
        if is_new:
            self.num_saved_tokens += len(node.tokens) // TOKEN_BYTES
            self._rest()
        return True

    def _rest(self) -> None:
        """Steps wait for their slowest thread: a core that one is kept from slows down all."""
        now_s = self._clock()
        if self._is_engine_busy():
            share = _HASTE if self._source.is_behind else _LEISURE
            pause_s = max(_PAUSE_S, share * (now_s - self._rested_at_s))
            time.sleep(pause_s)
            self._rested_s += pause_s
            now_s = self._clock()
        self._rested_at_s = now_s
