"""Cached prefixes on their way to disk, a few blocks at a time."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable

from puna._native import PrefixNode
from puna.engine.offload.disk import DiskWatch, FileThreads
from puna.engine.offload.lent_blocks import GroupBlock, LentBlocks, hold_blocks
from puna.engine.offload.model_offload import ModelOffload
from puna.kv.block_files import TOKEN_BYTES, BlockFiles
from puna.kv.prefix_store import PrefixStore

Then = Callable[[], None]

_FEW = 256
"""About so many nodes are lent at once."""
_AGE_STEP_NS = 1000  # by which a block's file is younger than that of the next
_PAUSE_S = 0.002


class PrefixSave:
    """Makes files of a model's cached blocks that have none: lend() and write() by turns."""

    def __init__(
        self,
        store: PrefixStore,
        model: ModelOffload,
        files: BlockFiles,
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
        self._store = store
        self._files = files
        self._clock = clock
        self._is_engine_busy = is_engine_busy
        self._listing = model.kv.tree.list_nodes()
        self._nodes: list[PrefixNode] = []
        self._lent: LentBlocks | None = None
        """Their blocks."""
        self._keys: dict[int, bytes] = {}
        self._num_bytes = 0
        self._begun_ns = time.time_ns()
        self._has_ended = False

    @property
    def held(self) -> Iterable[GroupBlock]:
        return [] if self._lent is None else self._lent.held

    @property
    def held_bytes(self) -> int:
        return 0 if self._lent is None else self._lent.held_bytes

    def lend(self) -> bool:
        """Holds some more nodes; False: there are none. By the engine's thread."""
        if self._lent is not None:
            self._lent.take_back()
        nodes = None if self.is_over else self._listing.next(_FEW)
        if nodes is None:
            return False
        by_node = [node.blocks for node in nodes]
        groups = range(len(self._files.groups))
        blocks = [[held[group] for held in by_node if held[group] >= 0] for group in groups]
        self._nodes, self._lent = nodes, hold_blocks(self.model.kv, blocks)
        return True

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
        try:
            self._write()
        except OSError as error:
            self._has_ended = True
            self._store.report("cannot save cached prefixes", error)

    def _write(self) -> None:
        assert self._lent is not None
        indexes = [itertools.count() for _ in self._files.groups]
        for node in self._nodes:
            if self.is_over or not self._write_node(node, self._lent, indexes):
                return
            self.progress += 1

    def _write_node(self, node: PrefixNode, lent: LentBlocks, indexes: list[itertools.count[int]]) -> bool:
        """indexes: of each group's next block among those lent. False: nothing more is to be written."""
        parent = self._files.root(node.parent) if isinstance(node.parent, str) else self._keys[node.parent]
        stored = self._files.behind(parent, node.tokens)
        self._keys[node.number] = stored.key
        modified_ns, is_new = self._begun_ns - self.progress * _AGE_STEP_NS, False
        for group, block in enumerate(node.blocks):
            if block < 0:  # it has slid out of a window, and is gone
                continue
            self._num_bytes += self._files.file_bytes(group)
            self._has_ended |= self._num_bytes > self._store.limit_bytes  # it would take the others' place
            content = None if self._has_ended else lent.read(group, next(indexes[group]))
            if content is None:
                return False
            if self._files.write(stored, content, node.following, modified_ns, group):
                is_new = True
                self._has_ended = not self._store.added(self._files.file_bytes(group))
        if is_new:
            self.num_saved_tokens += len(node.tokens) // TOKEN_BYTES
            if self._is_engine_busy():
                # Steps wait for their slowest thread: a core that one is kept from slows down all.
                time.sleep(_PAUSE_S)
        return True


class PrefixSaves:
    """Those of all models, one after the other. For the engine's thread."""

    def __init__(
        self,
        store: PrefixStore | None,
        clock: Callable[[], float],
        is_engine_busy: Callable[[], bool],
        on_end: Callable[[ModelOffload], None],
    ) -> None:
        """clock: seconds. on_end: told of whose model a save has ended, or is no longer waited for."""
        self.num_tokens = 0
        """Saved so far."""
        self.threads: FileThreads | None = None
        """None: nothing more is begun."""
        self._store = store
        self._clock = clock
        self._is_engine_busy = is_engine_busy
        self._on_end = on_end
        self._saves: list[PrefixSave] = []
        """The first is under way."""
        self._watch = DiskWatch(clock)

    @property
    def is_stuck(self) -> bool:
        """Whether the disk has not answered for long, and still does not."""
        return any(save.is_stuck for save in self._saves)

    @property
    def num_bytes(self) -> int:
        """Memory that take_back_oldest() gives back."""
        return sum(save.held_bytes for save in self._saves)

    def take_back_oldest(self) -> bool:
        """Ends one that holds blocks; False: there is none."""
        save = next((save for save in self._saves if save.held_bytes), None)
        if save is not None:
            save.take_back()
        return save is not None

    def begin(self, model: ModelOffload, seconds: float | None, then: Then | None) -> bool:
        """Writes what is cached, for so long at most; `then` is called if all was written.

        False: there is nothing to save.
        """
        if self.threads is None or model.files is None or model.kv.tree.num_nodes == 0:
            return False
        assert self._store is not None
        save = PrefixSave(self._store, model, model.files, self._clock, self._is_engine_busy)
        save.then = then
        if seconds is not None:
            save.deadline_s = self._clock() + seconds
            self._end_unhurried()
        model.saves.append(save)
        self._saves.append(save)
        if len(self._saves) == 1:
            self._go_on()
        return True

    def hurry(self, model: ModelOffload, seconds: float) -> None:
        """Has the model's saves end after so long, complete or not."""
        deadline_s = self._clock() + seconds
        for save in self._saves:
            if save.model is model:
                save.deadline_s = min(deadline_s, deadline_s if save.deadline_s is None else save.deadline_s)

    def give_up_stuck(self) -> float | None:
        """Takes blocks back if the disk does not answer. Returns the seconds until the next
        look; None: nothing is being written.
        """
        going = [save for save in self._saves if not save.is_stuck]
        progress = self.num_tokens + sum(save.progress for save in going)
        wait_s = self._watch.wait_s(progress if going else None)
        if wait_s != 0:
            return wait_s
        for save in going:
            save.is_stuck = True
            save.take_back()
        for save in going:
            self._on_end(save.model)
        return None

    def _end_unhurried(self) -> None:
        """Those of idle models, which have all the time, make way for one that has not: there is one thread,
        and they begin again later."""
        for save in self._saves:
            if save.deadline_s is None:
                save.deadline_s = self._clock()

    def _go_on(self) -> None:
        """With what is first; or with what comes next, where there is no more of it."""
        while self._saves:
            save = self._saves[0]
            if self.threads is not None and save.lend():
                self.threads.start("write", save.write, self._go_on)
                return
            self._end(save)

    def _end(self, save: PrefixSave) -> None:
        self._saves.remove(save)
        save.model.saves.remove(save)
        is_whole = not save.is_cut_short
        save.take_back()
        self.num_tokens += save.num_saved_tokens
        if save.num_saved_tokens and self.threads is not None and self._store is not None:
            self.threads.start("write", self._store.keep_limit, _nothing)
        if save.then is not None and is_whole:
            save.then()
        self._on_end(save.model)


def _nothing() -> None:
    pass
