"""What was used longest ago goes first when a directory gets too large, whoever else uses it."""

from __future__ import annotations

import errno
import logging
import os
import time
from pathlib import Path

import numpy as np
import pytest

from puna.backends.base import KvGroup
from puna.config.sizes import binary_size
from puna.kv.files.block_files import BlockFiles, StoredBlock
from puna.kv.files.identity import KvIdentity
from puna.kv.files.prefix_store import PrefixStore
from puna.kv.files.state_directory import StateDirectory

pytestmark = pytest.mark.unit

BLOCK_BYTES = 1024
CONTENT = np.zeros(BLOCK_BYTES, dtype=np.uint8)


def groups(num_layers: int) -> tuple[KvGroup, ...]:
    return (KvGroup(num_layers=num_layers, block_bytes=BLOCK_BYTES),)


def identity(**changes: object) -> KvIdentity:
    fields = {"model_id": "sha256:a", "kv_type": "f16", "groups": groups(2)}
    return KvIdentity(**{**fields, **changes})


KEY = bytes(range(32))
FILE_BYTES = PrefixStore(Path(), KEY).files(identity(), "").file_bytes()


def opened(root: Path, num_files: float | None) -> PrefixStore:
    store = PrefixStore(root, KEY, None if num_files is None else int(num_files * FILE_BYTES))
    store.open()
    return store


def put(store: PrefixStore, number: int, age: int, files: BlockFiles | None = None) -> StoredBlock:
    files = files or store.files(identity(), "cpu")
    block = files.behind(files.root(""), np.full(16, number, np.int32).tobytes())
    assert files.write(block, CONTENT, b"", (10**9 - age) * 10**9)
    store.added(files.file_bytes())
    return block


def numbers(store: PrefixStore, blocks: list[StoredBlock]) -> list[int]:
    files = store.files(identity(), "cpu")
    return [number for number, block in enumerate(blocks) if files.has(block)]


def test_the_oldest_files_go(tmp_path: Path):
    store = opened(tmp_path, 10)
    blocks = [put(store, number, age) for number, age in enumerate([5, 1, 9, 3, 7, 2, 8, 4, 6, 0])]
    assert numbers(store, blocks) == list(range(10))
    assert store.num_bytes == 10 * FILE_BYTES
    blocks.append(put(store, 10, 0))
    assert numbers(store, blocks) == [
        0,
        1,
        3,
        4,
        5,
        7,
        8,
        9,
        10,
    ]  # and one more, so that it is not at once again
    assert store.num_bytes == 9 * FILE_BYTES == on_disk(tmp_path)


def test_what_is_no_file_keeps_nothing_from_going(tmp_path: Path):
    store = opened(tmp_path, 10)
    blocks = [put(store, 0, 1)]
    directory = next(tmp_path.iterdir())
    (directory / "ours.kv").mkdir()
    (directory / "nowhere.kv").symlink_to("nowhere")
    os.utime(directory / "ours.kv", (0, 0))
    blocks += [put(store, number, 0) for number in range(1, 11)]
    assert numbers(store, blocks)[0] > 0
    assert store.num_bytes <= 10 * FILE_BYTES


def test_what_cannot_be_removed_keeps_others_from_being_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    store = opened(tmp_path, 10)
    for number in range(10):
        put(store, number, number)

    def unlink(*_: object, **__: object) -> None:
        raise PermissionError(errno.EPERM, "no")

    monkeypatch.setattr(os, "unlink", unlink)
    put(store, 10, 0)
    assert store.added(0) is False
    assert store.num_bytes == 11 * FILE_BYTES == on_disk(tmp_path)


def on_disk(root: Path) -> int:
    return sum(path.stat().st_size for path in root.rglob("*.kv"))


def test_models_share_the_limit(tmp_path: Path):
    store = opened(tmp_path, 2)
    old = store.files(identity(model_id="sha256:b"), "cpu")
    block = put(store, 0, 100, old)
    put(store, 1, 1)
    put(store, 2, 1)
    assert not old.has(block)


@pytest.mark.parametrize(
    "change", [{"model_id": "sha256:b"}, {"kv_type": "q8_0"}, {"groups": groups(3)}, {"block_tokens": 32}]
)
def test_each_kind_of_kv_has_its_own_directory(tmp_path: Path, change: dict):
    store = opened(tmp_path, 10)
    block = put(store, 1, 0)
    other = store.files(identity(**change), "cpu")
    assert not other.has(block)
    assert other.root("") != block.parent
    assert not store.files(identity(), "other kernels").has(block)


def test_a_store_finds_what_there_is_and_keeps_its_limit(tmp_path: Path):
    first = opened(tmp_path, 10)
    blocks = [put(first, number, 10 - number) for number in range(8)]
    second = opened(tmp_path, 4)
    assert numbers(second, blocks) == [5, 6, 7]
    assert second.num_bytes == 3 * FILE_BYTES


def test_what_a_lower_limit_removes_at_the_start_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    store = opened(tmp_path, 10)
    for number in range(10):
        put(store, number, number)
    caplog.set_level(logging.INFO)
    opened(tmp_path, 10)
    assert caplog.messages == []
    opened(tmp_path, 4)
    (message,) = caplog.messages
    assert message.startswith(
        f"removed {binary_size(7 * FILE_BYTES)} of cached prefixes in {tmp_path}, where"
    )


def test_processes_that_share_a_directory_see_what_the_others_wrote(tmp_path: Path):
    stores = [opened(tmp_path, 6) for _ in range(2)]
    blocks = [put(stores[number % 2], number, 20 - number) for number in range(6)]
    assert [store.num_bytes for store in stores] == [3 * FILE_BYTES] * 2
    for number in range(6, 10):  # of its own it has no more than the limit: it learns of the others' then
        blocks.append(put(stores[0], number, 20 - number))
    assert numbers(stores[0], blocks) == [5, 6, 7, 8, 9]
    assert stores[0].num_bytes == on_disk(tmp_path)
    stores[1].keep_limit()
    assert stores[1].num_bytes == on_disk(tmp_path)


def test_leftovers_of_killed_processes_go(tmp_path: Path):
    store = opened(tmp_path, 10)
    put(store, 0, 0)
    (directory,) = tmp_path.iterdir()
    old, new = directory / "puna-1.tmp", directory / "puna-2.tmp"
    for path in (old, new):
        path.touch()
    hours_ago = time.time() - 7200
    os.utime(old, (hours_ago, hours_ago))
    opened(tmp_path, 10)
    assert (old.exists(), new.exists()) == (False, True)


def test_the_default_limit_is_a_share_of_what_is_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(StateDirectory, "free_bytes", lambda _: 10 << 30)
    assert opened(tmp_path / "not" / "there", None).limit_bytes == (10 << 30) // 10
    monkeypatch.setattr(StateDirectory, "free_bytes", lambda _: 1 << 40)
    assert opened(tmp_path, None).limit_bytes == 8 << 30


def test_each_kind_of_error_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    store = opened(tmp_path, 10)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            store.report("cannot save", OSError(28, "No space left on device"))
            store.report("cannot save", OSError(30, "Read-only file system"))
            store.report("damaged", None)
    assert [record.getMessage() for record in caplog.records] == [
        f"cannot save in {tmp_path}: No space left on device",
        f"cannot save in {tmp_path}: Read-only file system",
        f"damaged in {tmp_path}",
    ]
