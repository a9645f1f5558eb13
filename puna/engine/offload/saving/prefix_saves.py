"""Cached prefixes on their way to disk: of all models, one after the other."""

from __future__ import annotations

from collections.abc import Callable

from puna.engine.offload.disk import DiskWatch, FileThreads
from puna.engine.offload.model_offload import ModelOffload
from puna.engine.offload.saving.prefix_save import PrefixSave, Then
from puna.engine.offload.saving.save_sources import ListedNodes, NodeSource
from puna.engine.offload.throughput import Throughput
from puna.kv.files.prefix_store import PrefixStore


class PrefixSaves:
    """For the engine's thread."""

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
        self.throughput = Throughput()
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

    @property
    def is_idle(self) -> bool:
        """Whether nothing is being written."""
        return not self._saves

    def begin(
        self,
        model: ModelOffload,
        seconds: float | None = None,
        then: Then | None = None,
        source: NodeSource | None = None,
    ) -> bool:
        """Writes what is cached, or what comes from elsewhere, for so long at most; `then` is called if all
        was written.

        False: there is nothing to save.
        """
        if self.threads is None or model.files is None or model.kv.tree.num_nodes == 0:
            return False
        assert self._store is not None
        source = source or ListedNodes(model, model.files)
        clock, is_busy = self._clock, self._is_engine_busy
        save = PrefixSave(self._store, model, model.files, source, self.throughput, clock, is_busy)
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
        save = self._saves[0]
        if self.threads is not None and save.lend():
            self.threads.start("write", save.write, self._go_on)
        else:
            self._end(save)

    def _end(self, save: PrefixSave) -> None:
        self._saves.remove(save)
        save.model.saves.remove(save)
        is_whole = not save.is_cut_short
        save.leave()
        self.num_tokens += save.num_saved_tokens
        if save.is_all and save.num_saved_tokens and self.threads is not None and self._store is not None:
            self.threads.start("write", self._store.keep_limit, _nothing)
        if self._saves:
            self._go_on()
        if save.then is not None and is_whole:
            save.then()
        self._on_end(save.model)  # which may begin another


def _nothing() -> None:
    pass
