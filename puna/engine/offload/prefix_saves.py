"""Cached prefixes on their way to disk, a few blocks at a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

from puna.engine.offload.disk import DiskWatch, FileThreads
from puna.engine.offload.lent_blocks import LentBlocks
from puna.engine.offload.model_offload import ModelOffload
from puna.kv import BlockId, BlockPool, PrefixCache, SequenceTable
from puna.kv.block_files import TOKEN_BYTES, BlockFiles
from puna.kv.prefix_cache import Node, NodeId
from puna.kv.prefix_store import PrefixStore

Then = Callable[[], None]

_FEW = 256
"""Blocks that are lent at once."""
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
        """What is not written then, is not written."""
        self.lent: LentBlocks | None = None
        self.num_saved_tokens = 0
        self.progress = 0
        """Blocks that have a file now."""
        self.is_cut_short = False
        """It ended before all was written."""
        self.is_stuck = False
        """The disk does not answer: nobody waits for it any more."""
        self._store = store
        self._files = files
        self._clock = clock
        self._is_engine_busy = is_engine_busy
        self._nodes = savable_nodes(model.kv.pool, model.kv.tree)
        self._next = 0
        self._few: list[Node] = []
        self._keys: dict[NodeId, bytes] = {}
        self._following: dict[NodeId, bytes] = {}
        for node in self._nodes:
            self._following.setdefault(node.parent, node.tokens)
        self._begun_ns = time.time_ns()
        self._has_ended = False

    @property
    def held(self) -> Sequence[BlockId]:
        return self.lent.table.blocks if self.lent else []

    @property
    def has_nodes(self) -> bool:
        return bool(self._nodes)

    def lend(self) -> bool:
        """Holds the next few blocks; False: that is all. By the engine's thread."""
        if self.is_over:
            return False
        kv, self._few = self.model.kv, []
        while not self._few and self._next < len(self._nodes):
            end = self._next + _FEW
            for node in self._nodes[self._next : end]:
                if kv.tree.nodes([node.block]) == [node]:  # it was not evicted meanwhile
                    self._few.append(node)
            self._next = end
        blocks = [node.block for node in self._few]
        kv.pool.retain(blocks)
        table = SequenceTable(kv.pool)
        table.adopt(blocks)
        self.lent = LentBlocks(kv.memory, table, blocks)
        return bool(blocks)

    def take_back(self) -> None:
        """Ends it. By the engine's thread."""
        self.is_cut_short = True
        if self.lent is not None:
            self.lent.take_back()

    @property
    def is_over(self) -> bool:
        """Whether nothing more is to be written."""
        if self.deadline_s is not None and self._clock() >= self.deadline_s:
            self.is_cut_short = True
        return self.is_cut_short or self._has_ended

    def write(self) -> None:
        """What was lent. In one thread."""
        try:
            self._write()
        except OSError as error:
            self._has_ended = True
            self._store.report("cannot save cached prefixes", error)

    def _write(self) -> None:
        assert self.lent is not None
        for index, node in enumerate(self._few):
            if self.progress >= self._store.limit_bytes // self._files.file_bytes():
                self._has_ended = True  # more would only take the place of these
            if self.is_over:
                return
            content = self.lent.read(index)
            if content is None:
                return
            parent = (
                self._files.root(node.parent) if isinstance(node.parent, str) else self._keys[node.parent]
            )
            stored = self._files.behind(parent, node.tokens)
            self._keys[node.number] = stored.key
            modified_ns = self._begun_ns - self.progress * _AGE_STEP_NS
            is_new = self._files.write(stored, content, self._following.get(node.number, b""), modified_ns)
            self.progress += 1
            if is_new:
                self.num_saved_tokens += len(node.tokens) // TOKEN_BYTES
                self._has_ended = not self._store.added(self._files.file_bytes())
            if is_new and self._is_engine_busy():
                # Steps wait for their slowest thread: a core that one is kept from slows down all.
                time.sleep(_PAUSE_S)


class PrefixSaves:
    """Those of all models, one after the other. For the engine's thread."""

    def __init__(
        self,
        store: PrefixStore,
        threads: FileThreads,
        clock: Callable[[], float],
        is_engine_busy: Callable[[], bool],
        on_end: Callable[[ModelOffload], None],
    ) -> None:
        """clock: seconds. on_end: told of whose model a save has ended, or is no longer waited for."""
        self.num_tokens = 0
        """Saved so far."""
        self._store = store
        self._threads = threads
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
        """What give_up_one() gives back."""
        return sum(len(save.held) * save.model.kv.pool.block_bytes for save in self._saves)

    def give_up_one(self) -> bool:
        """Ends one that holds blocks; False: there is none."""
        save = next((save for save in self._saves if save.held), None)
        if save is not None:
            save.take_back()
        return save is not None

    def begin(self, model: ModelOffload, seconds: float | None, then: Then | None) -> bool:
        """Writes what is cached, for so long at most; `then` is called if all was written.

        False: there is nothing to save.
        """
        if model.files is None:
            return False
        save = PrefixSave(self._store, model, model.files, self._clock, self._is_engine_busy)
        if not save.has_nodes:
            return False
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
        """What is not written until then, is not written."""
        deadline_s = self._clock() + seconds
        for save in self._saves:
            if save.model is model:
                save.deadline_s = min(deadline_s, deadline_s if save.deadline_s is None else save.deadline_s)

    def give_up_stuck(self) -> float | None:
        """Where the disk does not answer, gives back what was to be written. Seconds until to look again;
        None: nothing is written.
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
            if save.lend():
                self._threads.start("write", save.write, partial(self._written, save))
                return
            self._end(save)

    def _written(self, save: PrefixSave) -> None:
        assert save.lent is not None
        save.lent.take_back()
        self._go_on()

    def _end(self, save: PrefixSave) -> None:
        self._saves.remove(save)
        save.model.saves.remove(save)
        self.num_tokens += save.num_saved_tokens
        if save.num_saved_tokens:
            self._threads.start("write", self._store.count, _nothing)
        if save.then is not None and not save.is_cut_short:
            save.then()
        self._on_end(save.model)


def savable_nodes(pool: BlockPool, cache: PrefixCache) -> list[Node]:
    """What the cache knows and may go to disk, used last first, but none before what it builds on."""
    # The partial block of a running sequence is being written to.
    in_use = [node for node in cache.nodes(pool.references()) if node.is_full]
    known = [*in_use, *cache.nodes(pool.cached())]
    nodes = {node.number: node for node in known if cache.may_go_to_disk(node)}
    ordered: dict[NodeId, Node] = {}
    for node in nodes.values():
        path = []
        while node.number not in ordered:
            path.append(node)
            if isinstance(node.parent, str):
                break
            node = nodes[node.parent]
        ordered |= {node.number: node for node in reversed(path)}
    return list(ordered.values())


def _nothing() -> None:
    pass
