"""Threads and engine share blocks, which come back at once; what threads have done so far is sound."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

from puna._native import StepCosts
from puna.backends.base import KvGroup
from puna.engine.caching.cache_policy import PrefixPolicy
from puna.engine.offload.lent_blocks import LentBlocks
from puna.engine.offload.model_offload import ModelOffload
from puna.engine.offload.prefix_restores import PrefixRead
from puna.engine.offload.saving.prefix_save import PrefixSave
from puna.engine.offload.saving.save_sources import ListedNodes
from puna.engine.offload.throughput import Throughput
from puna.kv import BLOCK_TOKENS, Budget, SequenceTable
from puna.kv.files.block_files import StoredBlock
from puna.kv.files.identity import KvIdentity
from puna.kv.files.prefix_store import PrefixStore
from puna.kv.model_kv import ModelKv
from tests.engine.toy_memory import ToyMemory

pytestmark = pytest.mark.native

BLOCK_BYTES = 4096
TOKENS = np.arange(40 * BLOCK_TOKENS + 7, dtype=np.int32)


class Kv:
    """One model's memory and its files."""

    def __init__(self, directory: Path, num_blocks: int = 100) -> None:
        groups = (KvGroup(num_layers=1, block_bytes=BLOCK_BYTES),)
        self.memory = ToyMemory(num_blocks, BLOCK_BYTES)
        self.kv = ModelKv(groups, (self.memory,), Budget(num_blocks * BLOCK_BYTES))
        self.store = PrefixStore(directory, bytes(32), 1 << 30)
        identity = KvIdentity(model_id="m", kv_type="f16", groups=groups)
        self.files = self.store.files(identity, "cpu")
        self.model = ModelOffload(
            identity, "cpu", self.kv, PrefixPolicy(self.kv), self.files, StepCosts(), 0.0
        )

    @property
    def num_used(self) -> int:
        return self.kv.groups[0].pool.num_used

    def fill(self) -> None:
        """Caches blocks for TOKENS; each is full of its number."""
        table = self.kv.new_table()
        assert table.grow(len(TOKENS))
        for number, block in enumerate(table.blocks()):
            self.memory.write(block, np.full(BLOCK_BYTES, number, np.uint8))
        self.kv.tree.record_tail(self.kv.tree.start(""), table, TOKENS)
        table.release()

    def begin_save(self) -> PrefixSave:
        """Of all that is cached."""
        save = PrefixSave(
            self.store,
            self.model,
            self.files,
            ListedNodes(self.model, self.files),
            Throughput(),
            lambda: 0.0,
            lambda: False,
        )
        assert save.lend()
        return save

    def save(self) -> PrefixSave:
        save = self.begin_save()
        write_all(save)
        return save

    def restore(self, tokens: np.ndarray = TOKENS, num_known: int = 0) -> PrefixRead:
        """That has looked, and has blocks."""
        restore = PrefixRead(self.files, "", tokens, num_known)
        restore.probe()
        table = self.lend(len(restore.found))
        restore.lent = lend_all(self.kv, table)
        return restore

    def lend(self, count: int) -> SequenceTable:
        table = self.kv.new_table()
        assert table.grow(count * BLOCK_TOKENS)
        return table


def write_all(save: PrefixSave) -> None:
    save.write()
    while save.lend():
        save.write()


def lend_all(kv: ModelKv, table: SequenceTable) -> LentBlocks:
    return LentBlocks(kv, [table.blocks()], table.release)


@pytest.fixture
def kv(tmp_path: Path) -> Kv:
    return Kv(tmp_path)


def test_what_was_taken_back_is_neither_read_nor_written(kv: Kv):
    table = kv.lend(2)
    content, lent = np.ones(BLOCK_BYTES, np.uint8), lend_all(kv.kv, table)
    assert lent.write(0, 1, content)
    assert lent.read(0, 1).tolist() == content.tolist()
    lent.take_back()
    assert (lent.read(0, 1), lent.write(0, 1, content), kv.num_used) == (None, False, 0)
    lent.take_back()


def test_what_is_being_written_to_a_file_comes_back_at_once(kv: Kv, monkeypatch: pytest.MonkeyPatch):
    kv.fill()
    save, written = kv.begin_save(), []

    def write(_: StoredBlock, content: np.ndarray, *__: object) -> bool:
        save.take_back()
        assert kv.num_used == 0
        written.append(content)
        return True

    monkeypatch.setattr(kv.files, "write", write)
    save.write()
    kv.memory.write(0, np.full(BLOCK_BYTES, 99, np.uint8))  # somebody else's
    assert len(written) == 1
    assert (written[0] == 0).all()


def test_what_was_evicted_meanwhile_is_not_saved(kv: Kv, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("puna.engine.offload.saving.save_sources._FEW", 10)
    kv.fill()
    save = kv.begin_save()
    assert kv.num_used < 41, "a few at a time"
    for _ in range(5):
        kv.kv.blocks.evict(0)
    write_all(save)
    assert len(kv.restore().found) == 36


def test_several_threads_fill_all_blocks(kv: Kv):
    kv.fill()
    save = kv.save()
    assert save.num_saved_tokens == len(TOKENS)
    restore = kv.restore()
    threads = [threading.Thread(target=restore.read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert restore.num_sound == len(restore.found) == 41
    assert (restore.tokens(41) == TOKENS).all()
    for number, (_, block) in enumerate(restore.lent.held):
        assert (kv.memory.read(block) == number).all()


def test_taking_back_while_threads_read_and_write(kv: Kv):
    kv.fill()
    kv.save()
    for delay in np.linspace(0, 0.004, 20):
        restore, save = kv.restore(), kv.begin_save()
        threads = [threading.Thread(target=work) for work in (restore.read, restore.read, save.write)]
        for thread in threads:
            thread.start()
        threading.Event().wait(delay)
        restore.lent.take_back()
        save.take_back()
        for thread in threads:
            thread.join()
        assert kv.num_used == 0
        assert kv.kv.groups[0].pool.num_cached == 41


def test_only_what_comes_before_a_gap_is_sound(kv: Kv):
    kv.fill()
    kv.save()
    restore = kv.restore()
    next(kv.store.root.rglob(restore.found[17].file_name())).unlink()
    restore.read()
    assert restore.num_sound == 17
    assert (restore.tokens(17) == TOKENS[: 17 * BLOCK_TOKENS]).all()


def test_blocks_that_are_in_memory_are_not_looked_for(kv: Kv):
    kv.fill()
    kv.save()
    restore = kv.restore(num_known=30)
    assert len(restore.found) == 11
    restore.read()
    assert restore.num_sound == 11
    assert (restore.tokens(11) == TOKENS).all()
    assert kv.restore(TOKENS[: 30 * BLOCK_TOKENS], num_known=30).found == []
    assert kv.restore(TOKENS + 1).found == []


def test_blocks_are_older_the_farther_they_are_from_the_first(kv: Kv):
    kv.fill()
    kv.save()
    restore = kv.restore()

    def ages() -> list[int]:
        (directory,) = (path for path in kv.store.root.iterdir() if path.is_dir())
        return [-(directory / block.file_name()).stat().st_mtime_ns for block in restore.found]

    before = ages()
    assert before == sorted(before)
    again = kv.save()
    assert again.num_saved_tokens == 0
    after = ages()
    assert after == sorted(after)
    assert max(after) < min(before), "all are younger than any was"


def test_no_more_is_written_than_may_be_there(kv: Kv):
    kv.fill()
    kv.store.limit_bytes = 10 * kv.files.file_bytes()
    kv.save()
    assert len(kv.restore().found) == 10
    assert kv.store.num_bytes == kv.store.limit_bytes


def test_nothing_more_is_written_where_nothing_can_be_removed(kv: Kv, monkeypatch: pytest.MonkeyPatch):
    kv.fill()
    monkeypatch.setattr(kv.store, "added", lambda _: False)
    kv.save()
    assert len(kv.restore().found) == 1


WINDOWS = KvGroup(num_layers=1, block_bytes=64), KvGroup(num_layers=1, block_bytes=32, window=40)


@pytest.mark.parametrize(
    ("windowed", "num_known", "num_found", "read"),
    [
        (range(10), 0, 10, (7, 8, 9)),
        ((7, 8, 9), 0, 10, (7, 8, 9)),
        ((4, 5, 6, 7, 9), 0, 8, (5, 6, 7)),
        ((0, 1, 3, 4, 8, 9), 0, 2, (0, 1)),
        ((0, 1, 3, 4, 8, 9), 3, 5, (3, 4)),
        ((8, 9), 8, 10, (8, 9)),
        ((9,), 0, 0, ()),
    ],
)
def test_of_a_window_only_what_it_reaches_is_needed(
    tmp_path: Path, windowed: tuple[int, ...], num_known: int, num_found: int, read: tuple[int, ...]
):
    identity = KvIdentity(model_id="m", kv_type="f16", groups=WINDOWS)
    files = PrefixStore(tmp_path, bytes(32), 1 << 30).files(identity, "cpu")
    tokens = TOKENS[: 10 * BLOCK_TOKENS]
    for number, stored in enumerate(files.chain("", tokens.tobytes())):
        for group in range(2):
            if group == 0 or number in windowed:
                content = np.zeros(WINDOWS[group].block_bytes, np.uint8)
                files.write(stored, content, b"", 1, group)
    restore = PrefixRead(files, "", tokens, num_known)
    restore.probe()
    assert len(restore.found) == num_found - num_known if num_found else not restore.found
    assert [num_known + number for number, group in restore.places if group == 1] == list(read)
    assert sum(group == 0 for _, group in restore.places) == len(restore.found)


def test_a_long_prompt_of_which_no_window_is_on_disk_is_looked_through(tmp_path: Path):
    groups = (
        KvGroup(num_layers=1, block_bytes=64),
        KvGroup(num_layers=1, block_bytes=64, window=20),
    )
    identity = KvIdentity(model_id="m", kv_type="f16", groups=groups)
    files = PrefixStore(tmp_path, bytes(32), 1 << 30).files(identity, "cpu")
    tokens = np.arange(3000 * BLOCK_TOKENS, dtype=np.int32)
    for block in files.chain("", tokens.tobytes()):
        files.write(block, np.zeros(64, np.uint8), b"", 0)
    read = PrefixRead(files, "", tokens, 0)
    read.probe()
    assert read.found == []
    assert read.progress == 1
