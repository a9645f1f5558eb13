"""Prefixes outlive their time in memory: to disk when a model is idle or goes, back when they are wanted."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from puna._native import StepCosts
from puna.engine.caching.cache_policy import CachePolicy
from puna.engine.observation.stats import DiskStats
from puna.engine.offload.disk import FileThreads
from puna.engine.offload.model_offload import ModelOffload, findable_tokens
from puna.engine.offload.prefix_restores import MIN_BLOCKS, PrefixRestores
from puna.engine.offload.saving.prefix_saves import PrefixSaves
from puna.engine.offload.saving.write_behind import WriteBehind
from puna.engine.sequences.sequence import Sequence
from puna.engine.settings import EngineSettings
from puna.kv import BLOCK_TOKENS
from puna.kv.files.identity import KvIdentity
from puna.kv.files.prefix_store import PrefixStore
from puna.kv.model_kv import ModelKv

log = logging.getLogger(__name__)

SAVE_S = 5.0
"""So long an unloaded model, or an engine that ends, goes on writing."""
_HURRIED_SAVE_S = 0.3  # once somebody waits to read it
_COUNT_S = 5.0
"""Other processes use the directory, too: its files are counted again after so long."""


class WarmPrefixes:
    """Says when idle models give up their KV memory, and keeps on disk what was in it.

    For the engine's thread. Nothing is kept with slots, with memory that is reserved for good, and before
    use_threads().
    """

    def __init__(self, settings: EngineSettings, clock: Callable[[], float]) -> None:
        """clock: seconds."""
        self._idle_s = settings.kv_idle_s
        self._clock = clock
        self._store = _store(settings)
        self._threads: FileThreads | None = None
        is_busy, on_end = self._is_engine_busy, self._after_transfer
        self._restores = PrefixRestores(clock, is_busy, on_end)
        self._saves = PrefixSaves(self._store, clock, is_busy, on_end)
        behind = settings.write_behind and self._store is not None
        self._behind = WriteBehind(self._store, self._saves, clock) if behind and self._store else None
        self.models: list[ModelOffload] = []
        """Those awake."""
        self._leaving: list[ModelOffload] = []
        self._when_saved: list[Callable[[], None]] = []
        self._counted_s = 0.0

    def use_threads(self, threads: FileThreads) -> None:
        """From now on there is a disk."""
        if self._store is not None:
            self._threads = self._restores.threads = self._saves.threads = threads
            self._counted_s = self._clock()
            threads.start("write", self._store.open, _nothing)

    def stop(self) -> None:
        """Begins nothing more, and takes back what threads use, as soon as they are done with it."""
        self._threads = self._restores.threads = self._saves.threads = None
        while self.give_up_one():
            pass

    def attach(
        self, identity: KvIdentity, kernels: str, kv: ModelKv, policy: CachePolicy, costs: StepCosts
    ) -> ModelOffload:
        """Of a model that is awake now. kernels: what computes its KV."""
        files = self._store.files(identity, kernels) if self._store is not None and kv.groups else None
        model = ModelOffload(identity, kernels, kv, policy, files, costs, self._clock())
        self.models.append(model)
        if self._behind is not None and files is not None:
            self._behind.attach(model, files)
        return model

    def detach(self, model: ModelOffload) -> None:
        """Closes its KV memory, which is used for nothing else, once its content is on disk."""
        self.models.remove(model)
        if self._behind is not None:
            self._behind.detach(model)
        self._leaving.append(model)
        self._begin_save(model, SAVE_S)
        self._close_unused(model)

    def move(self, model: ModelOffload, kv: ModelKv, policy: CachePolicy) -> ModelOffload:
        """Its KV is kept elsewhere from now on; what is cached goes to disk. None of it is being read."""
        new = self.attach(model.identity, model.kernels, kv, policy, model.costs)
        new.active, new.num_begun, new.idle_since_s = model.active, model.num_begun, model.idle_since_s
        new.sessions = model.sessions  # none of which is pinned
        self.detach(model)
        return new

    def begin(self, model: ModelOffload, sequence: Sequence) -> bool:
        """A sequence has come. True: it waits for what is on disk, until it is among the restored."""
        model.active.add(sequence)
        model.num_begun += 1
        return self._begin(model, sequence)

    def look_again(self, model: ModelOffload, sequence: Sequence) -> bool:
        """As begin(), for a sequence that has begun."""
        return self._begin(model, sequence)

    def is_reading(self) -> bool:
        """Whether what is on disk is being read."""
        return self._restores.is_reading

    def end(self, model: ModelOffload, sequence: Sequence) -> None:
        """A sequence goes, whether or not it waits, or has begun at all."""
        model.active.discard(sequence)
        model.idle_since_s = self._clock()
        self._withdraw(sequence)

    @property
    def has_restored(self) -> bool:
        return bool(self._restores.ready)

    def take_restored(self) -> list[Sequence]:
        """Sequences that have waited long enough."""
        ready, self._restores.ready = self._restores.ready, []
        return ready

    def num_waiting(self, model_id: str) -> int:
        num_leaving = sum(len(old.waiting) for old in self._leaving if old.model_id == model_id)
        return num_leaving + self._restores.num_waiting(model_id)

    def tend(self) -> float | None:
        """Gives up on a disk that does not answer, offloads what has been idle for long enough, and writes
        what is new; seconds until there is something to do again, None if there is nothing.
        """
        waits_s = [self._give_up_stuck(), self.offload_idle(), self._write_behind()]
        return min((wait_s for wait_s in waits_s if wait_s is not None), default=None)

    def erase_model(self, model_id: str, done: Callable[[], None]) -> None:
        """Removes what is on disk of these weights, and keeps nothing of them there until they are loaded
        again. Then calls `done`.
        """
        for model in self._all_models():
            if model.model_id == model_id:
                model.files = None
                self._saves.hurry(model, 0.0)
        store = self._store
        if self._threads is None or store is None:
            done()
        else:  # behind what is being written
            self._threads.start("write", lambda: store.erase(model_id), done)

    def offload_idle(self) -> float | None:
        """Offloads what models have that were idle for long enough; seconds until the next will have been,
        None if there is none.
        """
        now_s, waits_s = self._clock(), []
        for model in self._all_models():
            model.drops &= not model.is_busy
            if model.drops:
                waits_s.append(0.0)
                self._drop_some(model)
        for model in self.models:
            if model.is_busy or model.drops or not self._has_idle_memory(model):
                continue
            wait_s = model.idle_since_s + self._idle_s - now_s
            if wait_s > 0:
                waits_s.append(wait_s)
            else:
                model.idle_since_s = now_s  # should anything be left, there is no hurry
                self.offload(model)
        return min(waits_s, default=None)

    def offload(self, model: ModelOffload) -> None:
        """Saves what is cached of a model, then gives its memory back, unless somebody came meanwhile or took
        some of it.
        """
        num_begun = model.num_begun

        def drop() -> None:
            if model in self.models and not model.is_busy and model.num_begun == num_begun:
                model.policy.empty_idle()
                self._drop_some(model)

        if not self._begin_save(model, None, drop):
            drop()

    @staticmethod
    def _drop_some(model: ModelOffload) -> None:
        """Of much memory a part, so that nobody is kept waiting."""
        model.drops = model.kv.drop_cached() or model.kv.trim()

    def save_all(self, done: Callable[[], None]) -> None:
        """Saves what is cached of all models, last used first, for SAVE_S at most; then calls `done`."""
        for model in sorted(self.models, key=lambda m: (not m.active, -m.idle_since_s)):
            self._begin_save(model, SAVE_S)
        self._when_saved.append(done)
        self._tell_if_saved()

    @property
    def num_bytes(self) -> int:
        """Memory that give_up_one() releases."""
        return self._saves.num_bytes + self._restores.num_bytes

    def give_up_one(self) -> bool:
        """Gives up what is being written, or else read; False: there is nothing."""
        return self._saves.take_back_oldest() or self._restores.give_up_oldest()

    def stats(self) -> DiskStats | None:
        """None: nothing is kept on disk. Changes by other processes are counted some seconds after a call."""
        if self._store is None or self._threads is None:
            return None
        if self._clock() - self._counted_s >= _COUNT_S:
            self._counted_s = self._clock()
            self._threads.start("write", self._store.keep_limit, _nothing)
        return DiskStats(
            limit_bytes=self._store.limit_bytes,
            num_bytes=self._store.num_bytes,
            restored_tokens=self._restores.num_tokens,
            saved_tokens=self._saves.num_tokens,
        )

    def _begin(self, model: ModelOffload, sequence: Sequence) -> bool:
        if self._threads is None or model.files is None:
            return False
        is_long = len(findable_tokens(sequence)) >= MIN_BLOCKS * BLOCK_TOKENS
        leaving = next((old for old in self._leaving if old.model_id == sequence.model_id), None)
        if leaving is not None and is_long and not self._is_stuck:
            self._saves.hurry(leaving, _HURRIED_SAVE_S)
            leaving.waiting.append(sequence)
            return True
        return self._restores.begin(model, sequence)

    def _withdraw(self, sequence: Sequence) -> None:
        for leaving in self._leaving:
            if sequence in leaving.waiting:
                leaving.waiting.remove(sequence)
                return
        self._restores.withdraw(sequence)

    @property
    def _is_stuck(self) -> bool:
        """Whether the disk has not answered for long, and still does not."""
        return self._restores.is_stuck or self._saves.is_stuck

    def _give_up_stuck(self) -> float | None:
        """Stops waiting for a disk that does not answer. Returns the seconds until the next look, if any."""
        was_stuck = self._is_stuck
        waits_s = self._restores.give_up_stuck(), self._saves.give_up_stuck()
        if self._is_stuck and not was_stuck:
            assert self._store is not None
            log.warning("the disk of %s does not answer: it is not waited for", self._store.root)
            for leaving in self._leaving:
                self._restores.ready += leaving.waiting
                leaving.waiting, leaving.drops = [], True
        return min((wait_s for wait_s in waits_s if wait_s is not None), default=None)

    def _is_engine_busy(self) -> bool:
        """Whether threads might disturb what is computed; when the engine ends, that does not matter."""
        return not self._when_saved and self._num_running > 0

    @property
    def _num_running(self) -> int:
        """Sequences that do not wait here."""
        return sum(len(model.active) - self.num_waiting(model.model_id) for model in self.models)

    def _all_models(self) -> list[ModelOffload]:
        return [*self._leaving, *self.models]

    def _begin_save(
        self, model: ModelOffload, seconds: float | None, then: Callable[[], None] | None = None
    ) -> bool:
        """False: there is nothing to save, or nowhere to save it."""
        return not self._is_stuck and self._saves.begin(model, seconds, then)

    def _after_transfer(self, model: ModelOffload) -> None:
        if model in self._leaving:
            self._close_unused(model)
        self._tell_if_saved()
        self._write_behind()

    def _close_unused(self, leaving: ModelOffload) -> None:
        if leaving.saves or leaving.restores:
            return
        self._leaving.remove(leaving)
        leaving.kv.close()
        for sequence in leaving.waiting:
            model = next(model for model in self.models if model.model_id == leaving.model_id)
            self._restores.begin_again(model, sequence)

    def _tell_if_saved(self) -> None:
        if not any(model.is_saving for model in self._all_models()):
            when_saved, self._when_saved = self._when_saved, []
            for done in when_saved:
                done()

    def _write_behind(self) -> float | None:
        if self._behind is None or self._threads is None:
            return None
        if self._is_stuck:
            self._behind.forget()
            return None
        return self._behind.tend()

    def _has_idle_memory(self, model: ModelOffload) -> bool:
        return model.kv.reclaimable_bytes > 0 or bool(model.policy.idle_tables())


def _store(settings: EngineSettings) -> PrefixStore | None:
    if settings.kv_dir is None or settings.kv_disk_bytes == 0:
        return None
    if settings.cache_policy != "prefix" or not settings.elastic or settings.state_key is None:
        return None
    return PrefixStore(
        Path(settings.kv_dir), settings.state_key, settings.kv_disk_bytes, settings.kv_bytes_per_day
    )


def _nothing() -> None:
    pass
