"""Threads and engine share blocks: what a thread uses stays, all else comes back at once."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

from puna.engine.offload.prefix_transfers import LentBlocks, PrefixRestore, PrefixSave, savable_nodes
from puna.kv import BLOCK_TOKENS, BlockPool, Budget, PrefixCache, SequenceTable
from puna.kv.checkpoint import KvIdentity
from puna.kv.prefix_files import PrefixFiles, StoredBlock
from puna.kv.prefix_store import PrefixStore
from tests.engine.toy_memory import ToyMemory

pytestmark = pytest.mark.native

BLOCK_BYTES = 4096
TOKENS = np.arange(40 * BLOCK_TOKENS + 7, dtype=np.int32)


class Kv:
    """One model's memory and its files."""

    def __init__(self, directory: Path, num_blocks: int = 100) -> None:
        self.memory = ToyMemory(num_blocks, BLOCK_BYTES)
        self.pool = BlockPool(self.memory, Budget(num_blocks * BLOCK_BYTES))
        self.cache = PrefixCache(self.pool)
        self.store = PrefixStore(directory, bytes(32), 1 << 30)
        identity = KvIdentity(model_id="m", kv_type="f16", num_layers=1, block_bytes=BLOCK_BYTES)
        self.files: PrefixFiles = self.store.files(identity, "cpu")

    def fill(self) -> None:
        """Caches blocks for TOKENS; each is full of its number."""
        table = SequenceTable(self.pool)
        assert table.grow(len(TOKENS))
        for number, block in enumerate(table.blocks):
            self.memory.write(block, np.full(BLOCK_BYTES, number, np.uint8))
        self.cache.record_tail(self.cache.start(""), table, TOKENS)
        table.release()

    def save(self, deadline_s: float | None = None) -> PrefixSave:
        """Of all that is cached."""
        nodes = savable_nodes(self.pool, self.cache)
        blocks = [node.block for node in nodes]
        self.pool.retain(blocks)
        lent = LentBlocks(self.memory, self.pool, blocks)
        return PrefixSave(self.store, self.files, nodes, lent, lambda: False, deadline_s)

    def restore(self, tokens: np.ndarray = TOKENS, num_known: int = 0) -> PrefixRestore:
        """That has looked, and has blocks."""
        restore = PrefixRestore(self.files, "", tokens, num_known)
        restore.probe()
        blocks = self.pool.acquire(len(restore.found))
        assert blocks is not None
        restore.blocks = LentBlocks(self.memory, self.pool, blocks)
        return restore

    def lend(self, count: int) -> LentBlocks:
        blocks = self.pool.acquire(count)
        assert blocks is not None
        return LentBlocks(self.memory, self.pool, blocks)


@pytest.fixture
def kv(tmp_path: Path) -> Kv:
    return Kv(tmp_path)


def test_blocks_that_are_taken_back_are_neither_read_nor_written(kv: Kv):
    lent = kv.lend(5)
    content = np.full(BLOCK_BYTES, 7, np.uint8)
    assert lent.fill(2, content)
    assert (lent.copy(2) == content).all()
    lent.take_back()
    assert kv.pool.num_used == len(lent.blocks) == 0
    assert not lent.fill(3, content)
    assert lent.copy(3) is None


def test_what_is_being_written_to_a_file_comes_back_at_once(kv: Kv, monkeypatch: pytest.MonkeyPatch):
    kv.fill()
    save, written = kv.save(), []

    def write(_: StoredBlock, content: np.ndarray, *__: object) -> bool:
        save.blocks.take_back()
        assert kv.pool.num_used == 0
        written.append(content)
        return True

    monkeypatch.setattr(kv.files, "write", write)
    save.run()
    assert len(written) == 1
    assert (written[0] == 0).all()


def test_detached_blocks_are_somebody_elses(kv: Kv):
    lent = kv.lend(3)
    blocks = lent.detach()
    lent.end()
    assert kv.pool.num_used == len(blocks) == 3
    other = kv.lend(3)
    other.take_back()
    assert other.detach() == []
    assert kv.pool.num_used == 3


def test_several_threads_fill_all_blocks(kv: Kv):
    kv.fill()
    save = kv.save()
    save.run()
    save.blocks.end()
    assert save.num_saved_tokens == len(TOKENS)
    restore = kv.restore()
    threads = [threading.Thread(target=restore.read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert restore.num_sound == len(restore.found) == 41
    assert (restore.tokens(41) == TOKENS).all()
    for number, block in enumerate(restore.blocks.detach()):
        assert (kv.memory.read(block) == number).all()


def test_taking_back_while_threads_read_and_write(kv: Kv):
    kv.fill()
    first = kv.save()
    first.run()
    first.blocks.end()
    for delay in np.linspace(0, 0.004, 20):
        restore, save = kv.restore(), kv.save()
        threads = [threading.Thread(target=work) for work in (restore.read, restore.read, save.run)]
        for thread in threads:
            thread.start()
        threading.Event().wait(delay)
        for lent in (restore.blocks, save.blocks):
            lent.take_back()
            assert lent.blocks == []
        for thread in threads:
            thread.join()
        for lent in (restore.blocks, save.blocks):
            lent.end()
        assert kv.pool.num_used == 0
        assert kv.pool.num_cached == 41


def test_only_what_comes_before_a_gap_is_sound(kv: Kv):
    kv.fill()
    save = kv.save()
    save.run()
    save.blocks.end()
    restore = kv.restore()
    next(kv.store.root.rglob(restore.found[17].file_name)).unlink()
    restore.read()
    assert restore.num_sound == 17
    assert (restore.tokens(17) == TOKENS[: 17 * BLOCK_TOKENS]).all()


def test_blocks_that_are_in_memory_are_not_looked_for(kv: Kv):
    kv.fill()
    save = kv.save()
    save.run()
    save.blocks.end()
    restore = kv.restore(num_known=30)
    assert len(restore.found) == 11
    restore.read()
    assert restore.num_sound == 11
    assert (restore.tokens(11) == TOKENS).all()
    assert kv.restore(TOKENS[: 30 * BLOCK_TOKENS], num_known=30).found == []
    assert kv.restore(TOKENS + 1).found == []


def test_blocks_are_older_the_farther_they_are_from_the_first(kv: Kv):
    kv.fill()
    save = kv.save()
    save.run()
    save.blocks.end()
    restore = kv.restore()

    def ages() -> list[int]:
        (directory,) = kv.store.root.iterdir()
        return [-(directory / block.file_name).stat().st_mtime_ns for block in restore.found]

    before = ages()
    assert before == sorted(before)
    again = kv.save()
    again.run()
    again.blocks.end()
    assert again.num_saved_tokens == 0
    after = ages()
    assert after == sorted(after)
    assert max(after) < min(before), "all are younger than any was"


def test_no_more_is_written_than_may_be_there(kv: Kv):
    kv.fill()
    kv.store.limit_bytes = 10 * kv.files.file_bytes
    save = kv.save()
    save.run()
    save.blocks.end()
    assert len(kv.restore().found) == 10
    assert kv.store.num_bytes == kv.store.limit_bytes


def test_nothing_more_is_written_where_nothing_can_be_removed(kv: Kv, monkeypatch: pytest.MonkeyPatch):
    kv.fill()
    monkeypatch.setattr(kv.store, "added", lambda _: False)
    save = kv.save()
    save.run()
    save.blocks.end()
    assert len(kv.restore().found) == 1
