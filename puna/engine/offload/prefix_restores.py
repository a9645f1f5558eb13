"""Sequences whose prefix is on disk wait until it is in memory, before the scheduler sees them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from puna.engine.offload.disk_watch import DiskWatch
from puna.engine.offload.prefix_transfers import LentBlocks, PrefixRestore, PrefixSave
from puna.engine.offload.sessions import ModelKv
from puna.engine.scheduling.sequence import Sequence
from puna.engine.scheduling.step_costs import StepCosts
from puna.kv import BLOCK_TOKENS, BlockId, Cursor, SequenceTable
from puna.kv.prefix_files import PrefixFiles

log = logging.getLogger(__name__)

MIN_BLOCKS = 4
"""Fewer are computed sooner than they are looked for."""
_NUM_READERS = 2  # one copies while the other waits for the disk, or copies, too
_CHUNK_TOKENS = 256  # of a step that computes a prompt
_SPEED_WEIGHT = 0.5  # of a new measurement
_FORGIVENESS = 1.5

Work = Callable[[], None]


class FileThreads(Protocol):
    """Threads for what waits for a disk."""

    def look(self, work: Work, done: Work) -> None:
        """Has a thread run `work`, which is short, and then the engine's thread `done`. It does not wait for
        what is read."""

    def read(self, work: Work, done: Work, num_threads: int = 1) -> None:
        """The same, with so many threads, for what takes longer."""

    def write(self, work: Work, done: Work) -> None:
        """The same, in the one thread that writes."""


@dataclass(eq=False, slots=True)
class WarmModel:
    """What is known of a model."""

    kv: ModelKv
    files: PrefixFiles | None
    """None: nothing of it is kept on disk."""
    costs: StepCosts
    idle_since_s: float
    active: set[Sequence] = field(default_factory=set)
    """Sequences in the engine."""
    num_begun: int = 0
    """Those, and all that were there."""
    saves: list[PrefixSave] = field(default_factory=list)
    num_restores: int = 0
    num_stuck: int = 0
    """Those of them that nobody waits for any more: the disk does not answer."""

    @property
    def is_busy(self) -> bool:
        return bool(self.active or self.is_saving or self.num_restores > self.num_stuck)

    @property
    def is_saving(self) -> bool:
        """Leaves out what nobody waits for any more."""
        return any(not save.is_stuck for save in self.saves)


@dataclass(eq=False, slots=True)
class _Restore:
    """A search, and then a transfer, that one sequence began; others that want the same wait for it, too."""

    model: WarmModel
    job: PrefixRestore
    wanted: Hashable
    """Names the first block that is missing."""
    cursor: Cursor
    table: SequenceTable
    """What is in memory, so that it stays there."""
    waiting: list[Sequence]
    is_given_up: bool = False
    is_stuck: bool = False
    """The disk does not answer."""
    started_s: float = 0.0

    @property
    def held(self) -> list[BlockId]:
        lent = [] if self.job.blocks is None else self.job.blocks.blocks
        return [*self.table.blocks, *lent]

    def brings(self, model: WarmModel, wanted: Hashable) -> bool:
        """Whether who wants this had better wait for it."""
        return self.model is model and self.wanted == wanted and not self.is_given_up

    def give_up(self) -> list[Sequence]:
        """What was read is lost. Returns those who wait."""
        self.is_given_up = True
        if self.job.blocks is not None:
            self.job.blocks.take_back()
        self.table.release()
        waiting, self.waiting = self.waiting, []
        return waiting


class PrefixRestores:
    """Those of all models. For the engine's thread."""

    def __init__(
        self,
        threads: FileThreads,
        clock: Callable[[], float],
        is_engine_busy: Callable[[], bool],
        on_end: Callable[[WarmModel], None],
    ) -> None:
        """clock: seconds. on_end: told of whose model a restore has ended."""
        self.ready: list[Sequence] = []
        """Have waited long enough."""
        self.num_tokens = 0
        """Restored so far."""
        self._threads = threads
        self._clock = clock
        self._is_engine_busy = is_engine_busy
        self._on_end = on_end
        self._restores: list[_Restore] = []
        self._watch = DiskWatch(clock)
        self._bytes_per_s: float | None = None

    def begin(self, model: WarmModel, sequence: Sequence) -> bool:
        """Whether the sequence had better wait until it is `ready`."""
        pool, cache, tokens = model.kv.pool, model.kv.cache, findable_tokens(sequence)
        if model.files is None or self.is_stuck or len(tokens) < MIN_BLOCKS * BLOCK_TOKENS:
            return False
        table = SequenceTable(pool)
        try:
            cursor = cache.start(sequence.namespace, to_disk=sequence.request.cache_to_disk)
            covered = cache.follow(cursor, table, tokens, len(tokens))
            wanted = cache.next_key(cursor, tokens)
            same = next((r for r in self._restores if r.brings(model, wanted)), None)
            if same is None and len(tokens) - covered >= MIN_BLOCKS * BLOCK_TOKENS:
                job = PrefixRestore(model.files, sequence.namespace, tokens, cursor.num_blocks)
                self._look(_Restore(model, job, wanted, cursor, table, [sequence]))
                return True
        except Exception:
            table.release()
            raise
        table.release()
        if same is not None:
            same.waiting.append(sequence)
        return same is not None

    def begin_again(self, model: WarmModel, sequence: Sequence) -> None:
        """As begin(), for one that has waited for something else: afterwards it waits, or is `ready`."""
        try:
            waits = self.begin(model, sequence)
        except Exception:
            log.exception("request %s goes on without what is on disk", sequence.id)
            self.withdraw(sequence)
            waits = False
        if not waits:
            self.ready.append(sequence)

    def _look(self, restore: _Restore) -> None:
        self._threads.look(restore.job.probe, lambda: self._read(restore))
        self._restores.append(restore)
        restore.model.num_restores += 1

    def withdraw(self, sequence: Sequence) -> None:
        """Forgets a sequence, if it waits. What nobody waits for is given up."""
        if sequence in self.ready:
            self.ready.remove(sequence)
        restore = next((r for r in self._restores if sequence in r.waiting), None)
        if restore is not None:
            restore.waiting.remove(sequence)
            if not restore.waiting:
                restore.give_up()

    def num_waiting(self, model_id: str) -> int:
        waiting = [sequence for restore in self._restores for sequence in restore.waiting]
        return sum(sequence.model_id == model_id for sequence in [*waiting, *self.ready])

    def held(self, model: WarmModel) -> list[BlockId]:
        """Blocks, as often as they are held."""
        return [block for restore in self._restores if restore.model is model for block in restore.held]

    @property
    def pinned_bytes(self) -> int:
        """What give_up_oldest() releases, now or when a thread is done with it."""
        return sum(len(restore.held) * restore.model.kv.pool.block_bytes for restore in self._restores)

    def give_up_oldest(self) -> bool:
        """For whoever needs its blocks; False: there is none."""
        restore = next((r for r in self._restores if not r.is_given_up), None)
        if restore is None:
            return False
        self.ready += restore.give_up()
        return True

    def give_up_stuck(self) -> float | None:
        """Where the disk does not answer, those who wait for it go on without. Seconds until that has to be
        looked at again; None: nobody waits.
        """
        going = [restore for restore in self._restores if not restore.is_given_up]
        progress = sum(restore.job.progress for restore in going) + self.num_tokens
        wait_s = self._watch.wait_s(progress if going else None)
        if wait_s != 0:
            return wait_s
        for restore in going:
            restore.is_stuck = True
            restore.model.num_stuck += 1
            self.ready += restore.give_up()
        return None

    @property
    def is_stuck(self) -> bool:
        return any(restore.is_stuck for restore in self._restores)

    def _read(self, restore: _Restore) -> None:
        """After the search."""
        if restore not in self._restores:  # it could not be begun
            return
        try:
            is_read = not restore.is_given_up and self._pays(restore) and self._begin_read(restore)
        except Exception:
            log.exception("a cached prefix cannot be read")
            is_read = False
            if restore.job.blocks is not None:
                restore.job.blocks.take_back()
        if not is_read:
            self._end(restore)

    def _begin_read(self, restore: _Restore) -> bool:
        """False: there is no room for it."""
        kv = restore.model.kv
        blocks = kv.pool.acquire(len(restore.job.found))
        if blocks is None:
            return False
        restore.job.blocks = LentBlocks(kv.memory, kv.pool, blocks)
        restore.started_s = self._clock()
        # Those who run need the cores, too.
        num_readers = 1 if self._is_engine_busy() else _NUM_READERS
        self._threads.read(restore.job.read, lambda: self._finish(restore), num_readers)
        return True

    def _pays(self, restore: _Restore) -> bool:
        """Whether to read what was found takes less time than to compute it; if in doubt, yes."""
        num_blocks, block_bytes = len(restore.job.found), restore.model.kv.pool.block_bytes
        if num_blocks < MIN_BLOCKS:
            return False
        chunk_s = restore.model.costs.estimate(_CHUNK_TOKENS)
        if chunk_s is None or self._bytes_per_s is None:
            return True
        if (
            num_blocks * block_bytes / self._bytes_per_s
            <= num_blocks * BLOCK_TOKENS / _CHUNK_TOKENS * chunk_s
        ):
            return True
        self._bytes_per_s *= _FORGIVENESS  # or one slow moment would be believed for ever
        return False

    def _finish(self, restore: _Restore) -> None:
        """After the transfer."""
        if restore not in self._restores:
            return
        try:
            if not restore.is_given_up:
                self._adopt(restore)
        except Exception:
            log.exception("a cached prefix is not used")
        self._end(restore)

    def _adopt(self, restore: _Restore) -> None:
        job, kv = restore.job, restore.model.kv
        assert job.blocks is not None
        num_sound = job.num_sound
        tokens = job.tokens(num_sound)
        blocks = job.blocks.detach()
        kv.pool.release(blocks[num_sound:])
        restore.table.adopt(blocks[:num_sound])
        kv.cache.record_tail(restore.cursor, restore.table, tokens)
        self._count(restore, num_sound)

    def _count(self, restore: _Restore, num_blocks: int) -> None:
        self.num_tokens += num_blocks * BLOCK_TOKENS
        seconds = self._clock() - restore.started_s
        if num_blocks and seconds > 0:
            speed = num_blocks * restore.model.kv.pool.block_bytes / seconds
            before = self._bytes_per_s or speed
            self._bytes_per_s = before + _SPEED_WEIGHT * (speed - before)

    def _end(self, restore: _Restore) -> None:
        self._restores.remove(restore)
        restore.model.num_restores -= 1
        restore.model.num_stuck -= restore.is_stuck
        if restore.job.blocks is not None:
            restore.job.blocks.end()
        restore.table.release()
        # The first has got what there is; the others may find more.
        self.ready += restore.waiting[:1]
        for sequence in restore.waiting[1:]:
            self.begin_again(restore.model, sequence)
        self._on_end(restore.model)


def findable_tokens(sequence: Sequence) -> NDArray[np.int32]:
    """Those whose KV may come from elsewhere; see PrefixPolicy."""
    if not sequence.request.cache_prompt:
        return sequence.tokens[:0]
    return sequence.tokens[: sequence.num_findable]
