"""A file gives back the block it was made of, to whoever asks for exactly that, or nothing."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from puna.backends.base import KvGroup
from puna.kv.files.block_files import BlockFiles, StoredBlock, UnsoundBlock
from puna.kv.files.state_directory import StateDirectory

pytestmark = pytest.mark.unit

BLOCK_BYTES = 256
CONTENT = np.arange(BLOCK_BYTES, dtype=np.uint8)


def tokens(first: int, count: int = 16) -> bytes:
    return np.arange(first, first + count, dtype=np.int32).tobytes()


class Files(BlockFiles):
    def __init__(self, directory: Path, key: bytes = bytes(32)) -> None:
        super().__init__(
            lambda make: StateDirectory.open(directory, make=make),
            key,
            (KvGroup(num_layers=1, block_bytes=BLOCK_BYTES), KvGroup(num_layers=2, block_bytes=64, window=9)),
            lambda text, _: self.reports.append(text),
        )
        self.directory = directory
        self.reports: list[str] = []

    def block(self, *firsts: int, namespace: str = "") -> StoredBlock:
        """The last of a path of blocks."""
        key = self.root(namespace)
        for first in firsts:
            block = self.behind(key, tokens(first))
            key = block.key
        return block

    def put(self, block: StoredBlock, content: NDArray[np.uint8] = CONTENT, following: bytes = b"") -> Path:
        assert self.write(block, content, following, 10**18)
        return next(path for path in self.directory.iterdir() if block.key.hex() in path.name)

    def get(self, block: StoredBlock) -> bytes | None:
        target = np.zeros(BLOCK_BYTES, dtype=np.uint8)
        return target.tobytes() if self.read_or_remove(block, target) else None


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path / "kind")


def test_what_was_written_is_read(files: Files):
    block = files.block(0, 16)
    assert not files.has(block)
    assert files.get(block) is None
    path = files.put(block, following=tokens(32, 5))
    assert files.has(block)
    assert files.get(block) == CONTENT.tobytes()
    assert files.following(block) == tokens(32, 5)
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert path.stat().st_mtime_ns == 10**18
    assert not files.reports


def test_a_block_that_is_there_is_not_written_again(files: Files):
    block = files.block(0)
    path = files.put(block, following=tokens(16))
    before = path.stat().st_ino
    assert not files.write(block, CONTENT, tokens(32), 2 * 10**18)
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before, 2 * 10**18)
    assert files.following(block) == tokens(32)
    assert files.get(block) == CONTENT.tobytes()


def test_a_block_stands_for_all_tokens_before_it(files: Files):
    files.put(files.block(0, 16))
    assert not files.has(files.block(1, 16))
    assert not files.has(files.block(16))
    assert not files.has(files.block(0, 0, 16))


def test_other_namespaces_and_keys_have_other_names(files: Files):
    files.put(files.block(0))
    assert not files.has(files.block(0, namespace="tenant"))
    other = Files(files.directory, bytes(31) + b"1")
    assert not other.has(other.block(0))


def test_a_file_under_another_name_is_refused(files: Files):
    one, other = files.block(0), files.block(16)
    files.put(one).rename(files.put(other))
    assert files.get(other) is None
    assert not files.has(other)
    assert len(files.reports) == 1


@pytest.mark.parametrize("size", [0, 10, 200, 256, 256 + BLOCK_BYTES - 1, 256 + BLOCK_BYTES + 1])
def test_a_file_of_another_size_is_none(files: Files, size: int):
    block = files.block(0)
    path = files.put(block)
    os.truncate(path, size)
    assert not files.has(block)
    assert files.following(block) in (b"", tokens(0, 0))
    assert files.get(block) is None or size > files.file_bytes()
    if path.exists():  # and is replaced
        files.put(block)
    assert len(files.reports) <= 1


@given(place=st.integers(0, 255 + BLOCK_BYTES), bit=st.integers(0, 7))
@settings(max_examples=200, deadline=None)
def test_a_damaged_file_is_removed_or_as_good_as_before(tmp_path_factory, place: int, bit: int):
    files = Files(tmp_path_factory.mktemp("files"))
    block = files.block(0)
    path = files.put(block, following=tokens(16))
    damaged = bytearray(path.read_bytes())
    damaged[place] ^= 1 << bit
    path.write_bytes(damaged)
    hint = range(156, 256)  # and what fills the header up: neither can do harm
    files.following(block)
    if place in hint:
        assert files.get(block) == CONTENT.tobytes()
    else:
        assert files.get(block) is None
        assert not path.exists()
        assert files.reports == ["removed a damaged or foreign file of a cached prefix"]


def test_what_cannot_be_read_is_reported_and_left(files: Files):
    block = files.block(0)
    path = files.put(block)
    path.unlink()
    path.mkdir()
    assert files.get(block) is None
    assert files.reports == ["cannot read cached prefixes"]


def test_a_directory_in_the_place_of_a_file_is_left_and_others_are_written(files: Files):
    block = files.block(0)
    path = files.put(block)
    path.unlink()
    path.mkdir()
    assert not files.write(block, CONTENT, b"", 0)
    assert files.reports == ["a directory is in the way of a cached prefix"]
    assert [entry.name for entry in files.directory.iterdir()] == [path.name]
    files.put(files.block(0, 16))


def test_nobody_waits_for_the_other_end_of_a_pipe(files: Files):
    block = files.block(0)
    path = files.put(block)
    path.unlink()
    os.mkfifo(path)
    assert not files.has(block)
    assert files.get(block) is None
    assert files.following(block) == b""
    assert files.put(block) == path
    assert files.get(block) == CONTENT.tobytes()


def test_what_a_link_points_to_is_not_touched(files: Files, tmp_path: Path):
    block = files.block(0)
    path = files.put(block)
    elsewhere = path.rename(tmp_path / "elsewhere")
    before = elsewhere.read_bytes(), elsewhere.stat().st_mtime_ns
    path.symlink_to(elsewhere)
    assert not files.has(block)
    assert files.write(block, CONTENT, tokens(32), 1)
    assert (elsewhere.read_bytes(), elsewhere.stat().st_mtime_ns) == before
    assert not path.is_symlink()
    assert files.has(block)


def test_what_cannot_be_opened_is_replaced(files: Files):
    block = files.block(0)
    path = files.put(block)
    path.write_bytes(b"no")
    path.chmod(0)
    assert files.put(block) == path
    assert files.get(block) == CONTENT.tobytes()


def test_a_failed_write_leaves_nothing(files: Files, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(os, "writev", lambda _, parts: len(parts[0]))  # the disk is full
    with pytest.raises(OSError, match="No space left"):
        files.write(files.block(0), CONTENT, b"", 0)
    assert list(files.directory.iterdir()) == []


def test_a_directory_that_cannot_be_made_is_an_error(tmp_path: Path):
    (tmp_path / "file").touch()
    files = Files(tmp_path / "file" / "kind")
    with pytest.raises(OSError, match="Not a directory"):
        files.write(files.block(0), CONTENT, b"", 0)
    assert files.get(files.block(0)) is None


def test_groups_of_layers_have_files_of_their_own(files: Files):
    block, content = files.block(0, 16), np.full(64, 7, dtype=np.uint8)
    assert files.write(block, content, b"", 1, group=1)
    assert (files.has(block), files.has(block, group=1)) == (False, True)
    assert files.is_sound(block, group=1)
    target = np.zeros(64, dtype=np.uint8)
    files.read(block, target, group=1)
    assert target.tolist() == content.tolist()
    path = files.directory / block.file_name(1)
    path.rename(files.directory / block.file_name(0))
    with pytest.raises(UnsoundBlock):
        files.read(block, np.zeros(BLOCK_BYTES, dtype=np.uint8))
