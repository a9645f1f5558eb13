"""Sequences whose prefix is on disk wait until it is in memory, before the scheduler sees them."""

from __future__ import annotations

import itertools
import logging
from bisect import bisect_left
from collections.abc import Callable, Hashable
from collections.abc import Sequence as Items

import numpy as np
from numpy.typing import NDArray

from puna.engine.offload.disk import DiskWatch, FileThreads
from puna.engine.offload.lent_blocks import GroupBlock, LentBlocks, blocks_from
from puna.engine.offload.model_offload import ModelOffload, findable_tokens
from puna.engine.offload.throughput import Throughput
from puna.engine.sequences.sequence import Sequence
from puna.kv import BLOCK_TOKENS, Cursor, SequenceTable
from puna.kv.block_files import BlockFiles, StoredBlock
from puna.kv.identity import first_needed_block

log = logging.getLogger(__name__)

MIN_BLOCKS = 4
"""Fewer are computed sooner than they are looked for."""
_NUM_READERS = 2  # one copies while the other waits for the disk, or copies, too


class PrefixRead:
    """Looks for the blocks that go on with what is in memory: probe(), then, once it has blocks, read()."""

    def __init__(self, files: BlockFiles, namespace: str, tokens: NDArray[np.int32], num_known: int) -> None:
        """tokens: of a sequence, as far as they may be found; num_known: blocks of them in memory."""
        self.found: list[StoredBlock] = []
        """Behind those in memory. Of the last perhaps only the start is wanted: it may go on differently."""
        self.places: list[tuple[int, int]] = []
        """The blocks that have to be read: (number in `found`, group of layers)."""
        self.firsts: list[int] = []
        """The first of them, by group."""
        self.position = 0
        """Of the token behind all that is wanted in full: what it sees is read."""
        self.lent: LentBlocks | None = None
        """Blocks at these places, to be filled."""
        self._files = files
        self._namespace = namespace
        self._tokens = tokens.copy()
        self._num_known = num_known
        self._next = itertools.count()
        self._is_sound = bytearray()
        self._has_failed = False
        self._has_looked = False

    @property
    def progress(self) -> int:
        """Changes while threads get on."""
        return self._has_looked + self._is_sound.count(1)

    @property
    def num_sound(self) -> int:
        """Blocks of `found` that were read without a gap."""
        end = self._is_sound.find(0)
        return len(self.found) if end < 0 else self.places[end][0]

    @property
    def num_bytes(self) -> int:
        """Of all that has to be read."""
        return sum(self._files.groups[group].block_bytes for _, group in self.places)

    @property
    def num_bytes_read(self) -> int:
        sizes = [self._files.groups[group].block_bytes for _, group in self.places]
        return sum(size for size, is_sound in zip(sizes, self._is_sound, strict=True) if is_sound)

    def tokens(self, num_found: int) -> NDArray[np.int32]:
        """Those in memory, and of so many blocks that were found."""
        found = b"".join(block.tokens for block in self.found[:num_found])
        known = self._tokens[: self._num_known * BLOCK_TOKENS]
        return np.concatenate([known, np.frombuffer(found, dtype=np.int32)])

    def probe(self) -> None:
        """Finds out what there is of use: the longest beginning behind which every group has what a token
        sees. In one thread.
        """
        num_full = len(self._tokens) // BLOCK_TOKENS
        chain = self._files.chain(self._namespace, self._tokens[: num_full * BLOCK_TOKENS].tobytes())
        wanted, groups = chain[self._num_known :], range(len(self._files.groups))
        keeps_all = [group for group in groups if self._files.groups[group].window is None]
        # With most blocks, those before it are there, too; if one is not, reading ends there.
        num_found = bisect_left(wanted, True, key=lambda block: not self._has(block, keeps_all))
        self.found = wanted[: self._num_resumable(wanted, num_found)]
        self.firsts = [self._first_needed(group, len(self.found)) for group in groups]
        self.position = (self._num_known + len(self.found)) * BLOCK_TOKENS
        if self.found:
            self._probe_partial(self.found[-1])
        numbers = range(len(self.found))
        self.places = [
            (number, group) for number in numbers for group in groups if number >= self.firsts[group]
        ]
        self._is_sound = bytearray(len(self.places))
        self._has_looked = True

    def _has(self, block: StoredBlock, groups: list[int]) -> bool:
        return all(self._files.has(block, group) for group in groups)

    def _num_resumable(self, wanted: list[StoredBlock], num_found: int) -> int:
        """Of so many that are there of groups without a window: as far as windows have what they reach."""
        while (missing := self._last_missing(wanted, num_found)) is not None:
            num_found = missing
        return num_found

    def _last_missing(self, wanted: list[StoredBlock], num_found: int) -> int | None:
        """The last block within a window behind so many of which that group has no file."""
        windowed = (group for group, shape in enumerate(self._files.groups) if shape.window is not None)
        for group in windowed:
            for number in reversed(range(self._first_needed(group, num_found), num_found)):
                if not self._files.has(wanted[number], group):
                    return number
        return None

    def _first_needed(self, group: int, num_found: int) -> int:
        """Of what was found: the first that the token behind it sees. What is in memory has what it sees."""
        num_blocks = self._num_known + num_found
        return max(first_needed_block(self._files.groups[group], num_blocks) - self._num_known, 0)

    def _probe_partial(self, last: StoredBlock) -> None:
        wanted = self._tokens[(self._num_known + len(self.found)) * BLOCK_TOKENS :]
        tokens = self._files.following(last)
        if len(wanted) and tokens.startswith(wanted[:1].tobytes()):
            block = self._files.behind(last.key, tokens)
            if self._has(block, list(range(len(self._files.groups)))):
                self.found.append(block)

    def read(self) -> None:
        """Fills the blocks. In as many threads as one likes."""
        assert self.lent is not None
        for index in self._next:
            if index >= len(self.places) or self._has_failed:
                return
            number, group = self.places[index]
            content = np.empty(self._files.groups[group].block_bytes, dtype=np.uint8)
            is_read = self._files.read_or_remove(self.found[number], content, group)
            if not is_read or not self.lent.write(group, number - self.firsts[group], content):
                self._has_failed = True
                return
            self._is_sound[index] = 1


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
        tokens = findable_tokens(sequence)
        if len(tokens) < MIN_BLOCKS * BLOCK_TOKENS or self.is_stuck:
            return False
        if self.threads is None or model.files is None:
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
        covered = tree.follow(cursor, table, tokens, len(tokens))
        wanted = tree.next_key(cursor, tokens)
        same = next((restore for restore in self._restores if restore.brings(model, wanted)), None)
        if same is None and len(tokens) - covered >= MIN_BLOCKS * BLOCK_TOKENS:
            job = PrefixRead(files, sequence.namespace, tokens, cursor.num_blocks)
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
        restore = next((r for r in self._restores if sequence in r.waiting), None)
        if restore is not None:
            restore.waiting.remove(sequence)
            if not restore.waiting:
                restore.give_up()

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
    def is_stuck(self) -> bool:
        return any(restore.is_stuck for restore in self._restores)

    def _read(self, restore: PrefixRestore) -> None:
        """After the search."""
        if restore not in self._restores:  # it could not be begun
            return
        try:
            is_read = self.threads is not None and not restore.is_given_up and self._pays(restore)
            is_read = is_read and self._begin_read(restore)
        except Exception:
            log.exception("a cached prefix cannot be read")
            is_read = False
        if not is_read:
            self._end(restore)

    def _begin_read(self, restore: PrefixRestore) -> bool:
        """False: there is no room for it."""
        job, table = restore.job, restore.table
        num_known = restore.cursor.num_blocks
        if not table.grow(len(job.tokens(len(job.found))), job.position):
            return False
        blocks = blocks_from(table, [num_known + first for first in job.firsts])
        job.lent = LentBlocks(restore.model.kv, blocks, table.release)
        restore.started_s = self._clock()
        # Running sequences need the cores, too.
        num_readers = 1 if self._is_engine_busy() else _NUM_READERS
        assert self.threads is not None
        self.threads.start("read", job.read, lambda: self._finish(restore), num_readers)
        return True

    def _pays(self, restore: PrefixRestore) -> bool:
        """Whether reading the found blocks takes less time than computing them; if in doubt, yes."""
        num_blocks, num_bytes = len(restore.job.found), restore.job.num_bytes
        if num_blocks < MIN_BLOCKS:
            return False
        compute_s, read_s = restore.model.compute_s(num_blocks), self._throughput.seconds(num_bytes)
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
        tokens = restore.job.tokens(restore.job.num_sound)
        restore.table.truncate(len(tokens))
        restore.model.kv.tree.record_tail(restore.cursor, restore.table, tokens)
        self.num_tokens += restore.job.num_sound * BLOCK_TOKENS
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
