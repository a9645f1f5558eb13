"""Cached prefixes on their way to disk."""

from __future__ import annotations

import time
from collections.abc import Callable

from puna.engine.offload.disk_watch import DiskWatch
from puna.engine.offload.prefix_restores import FileThreads, WarmModel
from puna.engine.offload.prefix_transfers import LentBlocks, PrefixSave, savable_nodes
from puna.kv.prefix_store import PrefixStore

Then = Callable[[], None]


class PrefixSaves:
    """Those of all models. For the engine's thread."""

    def __init__(
        self,
        store: PrefixStore,
        threads: FileThreads,
        clock: Callable[[], float],
        is_engine_busy: Callable[[], bool],
        on_end: Callable[[WarmModel], None],
    ) -> None:
        """clock: seconds. on_end: told of whose model a save has ended, or is no longer waited for."""
        self.num_tokens = 0
        """Saved so far."""
        self._store = store
        self._threads = threads
        self._is_engine_busy = is_engine_busy
        self._on_end = on_end
        self._saves: list[tuple[WarmModel, PrefixSave]] = []
        self._watch = DiskWatch(clock)

    @property
    def is_stuck(self) -> bool:
        """Whether the disk has not answered for long, and still does not."""
        return any(save.is_stuck for _, save in self._saves)

    def begin(self, model: WarmModel, seconds: float | None, then: Then | None) -> bool:
        """Writes what is cached, for so long at most; `then` is called if all was written.

        False: there is nothing to save.
        """
        nodes = savable_nodes(model.kv.pool, model.kv.cache)
        if not nodes or model.files is None:
            return False
        model.kv.pool.retain([node.block for node in nodes])
        lent = LentBlocks(model.kv.memory, model.kv.pool, [node.block for node in nodes])
        deadline_s = None if seconds is None else self._hurried_deadline_s(seconds)
        save = PrefixSave(self._store, model.files, nodes, lent, self._is_engine_busy, deadline_s)
        model.saves.append(save)
        self._saves.append((model, save))
        self._threads.write(save.run, lambda: self._end(model, save, then))
        return True

    def give_up_stuck(self) -> float | None:
        """Where the disk does not answer, gives back what was to be written. Seconds until to look again;
        None: nothing is written.
        """
        going = [(model, save) for model, save in self._saves if not save.is_stuck]
        progress = self.num_tokens + sum(save.progress for _, save in going)
        wait_s = self._watch.wait_s(progress if going else None)
        if wait_s != 0:
            return wait_s
        for _, save in going:
            save.is_stuck = True
            save.blocks.take_back()
        for model, _ in going:
            self._on_end(model)
        return None

    def _hurried_deadline_s(self, seconds: float) -> float:
        """Of a save that begins now. Those of idle models, which have all the time, end for it: there is one
        thread, and they begin again later."""
        now_s = time.monotonic()
        for _, save in self._saves:
            if save.deadline_s is None:
                save.deadline_s = now_s
        return now_s + seconds

    def _end(self, model: WarmModel, save: PrefixSave, then: Then | None) -> None:
        self._saves.remove((model, save))
        model.saves.remove(save)
        save.blocks.end()
        self.num_tokens += save.num_saved_tokens
        if then is not None and not (save.blocks.is_wanted_back or save.is_cut_short):
            then()
        self._on_end(model)
