"""Sequences whose prefix is on disk wait until it is in memory, before the scheduler sees them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable
from collections.abc import Sequence as Items

import numpy as np
from numpy.typing import NDArray

from puna.engine.offload.disk import DiskWatch, FileThreads
from puna.engine.offload.lent_blocks import GroupBlock, LentBlocks, blocks_from
from puna.engine.offload.model_offload import ModelOffload, findable_tokens
from puna.engine.offload.prefix_read import PrefixRead
from puna.engine.offload.throughput import Throughput
from puna.engine.sequences.sequence import Sequence
from puna.kv import BLOCK_TOKENS, Cursor, SequenceTable
from puna.kv.files.block_files import BlockFiles

log = logging.getLogger(__name__)

MIN_BLOCKS = 4
"""Fewer are computed sooner than they are looked for."""
_NUM_READERS = 2  # one copies while the other waits for the disk, or copies, too


class PrefixRestore:
    """A search, and then a transfer, that one sequence began; others that want the same wait for it, too."""

    def __init__(
        self,
        model: ModelOffload,
        job: PrefixRead,
        wanted: Hashable,
        cursor: Cursor,
        table: SequenceTable,
        sequence: Sequence,
    ) -> None:
        """wanted: names the first block that is missing. table: what is in memory, so that it stays there."""
        self.model = model
        self.job = job
        self.wanted = wanted
        self.cursor = cursor
        self.table = table
        self.waiting = [sequence]
        self.is_given_up = False
        self.is_stuck = False
        """The disk does not answer."""
        self.started_s = 0.0

    @property
    def held(self) -> Items[GroupBlock]:
        groups = range(len(self.model.kv.groups))
        return [(group, block) for group in groups for block in self.table.blocks(group)]

    def brings(self, model: ModelOffload, wanted: Hashable) -> bool:
        """Whether a sequence that wants this should wait for it."""
        return self.model is model and self.wanted == wanted and not self.is_given_up

    def give_up(self) -> list[Sequence]:
        """Drops what was read. Returns the sequences that waited for it."""
        self.is_given_up = True
        self.release()
        waiting, self.waiting = self.waiting, []
        return waiting

    def release(self) -> None:
        """Gives its blocks back; what is read after that is dropped."""
        if self.job.lent is not None:
            self.job.lent.take_back()
        self.table.release()


class PrefixRestores:
    """The restores of all models. For the engine's thread."""

    def __init__(
        self,
        clock: Callable[[], float],
        is_engine_busy: Callable[[], bool],
        on_end: Callable[[ModelOffload], None],
    ) -> None:
        """clock: seconds. on_end: told of whose model a restore has ended."""
        self.ready: list[Sequence] = []
        """Have waited long enough."""
        self.num_tokens = 0
        """Restored so far."""
        self.threads: FileThreads | None = None
        """None: nothing more is begun."""
        self._clock = clock
        self._is_engine_busy = is_engine_busy
        self._on_end = on_end
        self._restores: list[PrefixRestore] = []
        self._watch = DiskWatch(clock)
        self._throughput = Throughput()

    def begin(self, model: ModelOffload, sequence: Sequence) -> bool:
        """Whether the sequence should wait until it is `ready`."""
        if self.threads is None or model.files is None:
            return False
        tokens = findable_tokens(sequence)
        if len(tokens) < MIN_BLOCKS * BLOCK_TOKENS or self.is_stuck:
            return False
        table = model.kv.new_table()
        try:
            return self._begin(model, model.files, self.threads, sequence, tokens, table)
        except Exception:
            table.release()
            raise

    def _begin(
        self,
        model: ModelOffload,
        files: BlockFiles,
        threads: FileThreads,
        sequence: Sequence,
        tokens: NDArray[np.int32],
        table: SequenceTable,
    ) -> bool:
        tree = model.kv.tree
        cursor = tree.start(sequence.namespace, to_disk=sequence.request.cache_to_disk)
        if model.kv.has_states:
            covered = tree.hold(cursor, table, tokens)
        else:
            covered = tree.follow(cursor, table, tokens, len(tokens))
        sequence.num_known = max(sequence.num_known, covered)
        wanted = tree.next_key(cursor, tokens)
        same = next((restore for restore in self._restores if restore.brings(model, wanted)), None)
        if same is None and len(tokens) - covered >= MIN_BLOCKS * BLOCK_TOKENS:
            job = PrefixRead(files, sequence.namespace, tokens, table.num_blocks, covered)
            restore = PrefixRestore(model, job, wanted, cursor, table, sequence)
            threads.start("find", job.probe, lambda: self._read(restore))
            self._restores.append(restore)
            model.restores.append(restore)
            return True
        table.release()
        if same is not None:
            same.waiting.append(sequence)
        return same is not None

    def begin_again(self, model: ModelOffload, sequence: Sequence) -> None:
        """As begin(), for one that has waited for something else: afterwards it waits, or is `ready`."""
        try:
            waits = self.begin(model, sequence)
        except Exception:
            log.exception("request %s goes on without what is on disk", sequence.id)
            self.withdraw(sequence)
            waits = False
        if not waits:
            self.ready.append(sequence)

    def withdraw(self, sequence: Sequence) -> None:
        """Forgets a sequence, if it waits. Gives up restores for which no sequence waits."""
        if sequence in self.ready:
            self.ready.remove(sequence)
        for restore in self._restores:
            if sequence in restore.waiting:
                restore.waiting.remove(sequence)
                if not restore.waiting:
                    restore.give_up()
                break

    def num_waiting(self, model_id: str) -> int:
        waiting = [sequence for restore in self._restores for sequence in restore.waiting]
        return sum(sequence.model_id == model_id for sequence in [*waiting, *self.ready])

    @property
    def num_bytes(self) -> int:
        """Memory that give_up_oldest() releases."""
        return sum(restore.table.held_bytes for restore in self._restores)

    def give_up_oldest(self) -> bool:
        """Makes the oldest restore give its blocks up; False: there is none."""
        restore = next((r for r in self._restores if not r.is_given_up), None)
        if restore is None:
            return False
        for sequence in restore.waiting:  # all of it may be there
            sequence.num_known = len(findable_tokens(sequence))
        self.ready += restore.give_up()
        return True

    def give_up_stuck(self) -> float | None:
        """Lets waiting sequences go on if the disk does not answer. Returns the seconds until the next look;
        None: no sequence waits.
        """
        going = [restore for restore in self._restores if not restore.is_given_up]
        progress = sum(restore.job.progress for restore in going) + self.num_tokens
        wait_s = self._watch.wait_s(progress if going else None)
        if wait_s != 0:
            return wait_s
        for restore in going:
            restore.is_stuck = True
            self.ready += restore.give_up()
        return None

    @property
    def is_reading(self) -> bool:
        """Whether blocks are held to be read into."""
        return any(r.job.lent is not None and not r.is_given_up for r in self._restores)

    @property
    def is_stuck(self) -> bool:
        return any(restore.is_stuck for restore in self._restores)

    def _read(self, restore: PrefixRestore) -> None:
        """After the search."""
        if restore not in self._restores:  # it could not be begun
            return
        try:
            is_read = self.threads is not None and not restore.is_given_up and self._pays(restore)
            for sequence in restore.waiting:
                sequence.num_known = restore.job.position if is_read else restore.job.num_usable
            is_read = is_read and self._begin_read(restore)
        except Exception:
            log.exception("a cached prefix cannot be read")
            is_read = False
        if not is_read:
            self._end(restore)

    def _begin_read(self, restore: PrefixRestore) -> bool:
        """False: there is no room for it."""
        job, table, kv = restore.job, restore.table, restore.model.kv
        if job.num_known < table.num_blocks:
            table.truncate(job.num_known * BLOCK_TOKENS)
        num_full = job.position // BLOCK_TOKENS  # behind which windows are read
        if not table.grow(len(job.tokens(len(job.found))), num_full * BLOCK_TOKENS):
            return False
        blocks = blocks_from(kv, table, [job.num_known + first for first in job.firsts])
        job.lent = LentBlocks(kv, blocks, table.release)
        restore.started_s = self._clock()
        # Running sequences need the cores, too.
        num_readers = 1 if self._is_engine_busy() else _NUM_READERS
        assert self.threads is not None
        self.threads.start("read", job.read, lambda: self._finish(restore), num_readers)
        return True

    def _pays(self, restore: PrefixRestore) -> bool:
        """Whether reading the found blocks takes less time than computing them; if in doubt, yes."""
        num_gained = restore.job.num_gained
        if num_gained < MIN_BLOCKS * BLOCK_TOKENS:
            return False
        compute_s = restore.model.compute_s(num_gained)
        read_s = self._throughput.seconds(restore.job.num_bytes)
        if compute_s is None or read_s is None or read_s <= compute_s:
            return True
        self._throughput.forgive()
        return False

    def _finish(self, restore: PrefixRestore) -> None:
        """After the transfer."""
        if restore not in self._restores:
            return
        try:
            if not restore.is_given_up:
                self._adopt(restore)
        except Exception:
            log.exception("a cached prefix is not used")
        self._end(restore)

    def _adopt(self, restore: PrefixRestore) -> None:
        job, table, tree = restore.job, restore.table, restore.model.kv.tree
        if restore.model.kv.has_states:
            num_tokens = job.num_gained if job.is_whole else 0
            if job.is_whole:
                table.stepped(job.position)
                tree.snapshot(restore.cursor, table, job.tokens(len(job.found)))
        else:
            num_tokens, tokens = job.num_sound * BLOCK_TOKENS, job.tokens(job.num_sound)
            table.truncate(len(tokens))
            tree.record_tail(restore.cursor, table, tokens)
        self.num_tokens += num_tokens
        restore.waiting[0].record.num_restored += num_tokens  # nobody waits for one that is given up
        self._throughput.observe(restore.job.num_bytes_read, self._clock() - restore.started_s)

    def _end(self, restore: PrefixRestore) -> None:
        self._restores.remove(restore)
        restore.model.restores.remove(restore)
        restore.release()
        # The first has got what there is; the others may find more.
        self.ready += restore.waiting[:1]
        for sequence in restore.waiting[1:]:
            self.begin_again(restore.model, sequence)
        self._on_end(restore.model)
