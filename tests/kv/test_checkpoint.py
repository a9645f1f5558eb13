"""A checkpoint brings back exactly what was saved, or says why it cannot; it never half exists."""

from __future__ import annotations

import os
import stat
import struct
import zlib
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from puna.kv.checkpoint import (
    Checkpoint,
    CheckpointError,
    CheckpointHeader,
    CheckpointMismatch,
    KvIdentity,
    read_header,
    remove_leftovers,
    write_checkpoint,
)

pytestmark = pytest.mark.unit

CREATED = datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC)
KV = KvIdentity(model_id="sha256-abc", kv_type="q8_0", num_layers=3, block_bytes=64)


def header(num_tokens: int, **fields: object) -> CheckpointHeader:
    values = {"kv": KV, "name": "n", "cache_salt": "s", "created_at": CREATED, **fields}
    return CheckpointHeader(num_tokens=num_tokens, **values)


def content(num_tokens: int) -> tuple[NDArray[np.int32], list[NDArray[np.uint8]]]:
    rng = np.random.default_rng(num_tokens)
    tokens = rng.integers(0, 2**31, num_tokens).astype(np.int32)
    return tokens, list(rng.integers(0, 256, (-(-num_tokens // 16), 64)).astype(np.uint8))


def write(path: Path, num_tokens: int) -> bytes:
    write_checkpoint(path, header(num_tokens), *content(num_tokens))
    return path.read_bytes()


def read(path: Path) -> tuple[CheckpointHeader, list[int], list[bytes]]:
    with Checkpoint(path) as checkpoint:
        tokens = checkpoint.read_tokens().tolist()
        return checkpoint.header, tokens, [block.tobytes() for block in checkpoint.blocks()]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bytes]:
    """A file to damage copies of, and its content: 40 tokens in three blocks."""
    path = tmp_path_factory.mktemp("saved") / "a.kv"
    return path, write(path, 40)


def damaged(saved: tuple[Path, bytes], data: bytes) -> Path:
    path = saved[0].with_name("damaged.kv")
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("num_tokens", [1, 15, 16, 17, 1000])
def test_what_is_written_is_read(tmp_path: Path, num_tokens: int):
    write(tmp_path / "a.kv", num_tokens)
    tokens, blocks = content(num_tokens)
    expected = (header(num_tokens), tokens.tolist(), [block.tobytes() for block in blocks])
    assert read(tmp_path / "a.kv") == expected
    assert read_header(tmp_path / "a.kv") == expected[0]


def test_only_the_owner_can_read_it(tmp_path: Path):
    write(tmp_path / "new" / "a.kv", 5)
    assert stat.S_IMODE((tmp_path / "new" / "a.kv").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o700


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_any_changed_byte_is_noticed(saved: tuple[Path, bytes], data: st.DataObject):
    content = bytearray(saved[1])
    content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(CheckpointError, match=r"damaged\.kv"):
        read(damaged(saved, bytes(content)))


def test_any_truncation_is_noticed(saved: tuple[Path, bytes]):
    for length in range(len(saved[1])):
        with pytest.raises(CheckpointError, match="truncated"):
            Checkpoint(damaged(saved, saved[1][:length]))  # before anything is allocated for it


def test_what_comes_behind_the_end_is_noticed(saved: tuple[Path, bytes]):
    with pytest.raises(CheckpointError, match="corrupt"):
        read_header(damaged(saved, saved[1] + b"\0"))


def test_blocks_that_changed_places_are_noticed(saved: tuple[Path, bytes]):
    size = KV.block_bytes + 4  # with the checksum
    start, first, second, third = (
        saved[1][: -3 * size],
        saved[1][-3 * size : -2 * size],
        saved[1][-2 * size : -size],
        saved[1][-size:],
    )
    with pytest.raises(CheckpointError, match="block 0"):
        read(damaged(saved, start + second + first + third))


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200))
def test_garbage_is_refused(saved: tuple[Path, bytes], data: bytes):
    with pytest.raises(CheckpointError):
        read(damaged(saved, data))


def with_prefix(magic: bytes, version: int, header_bytes: int) -> bytes:
    return struct.pack("<8sII", magic, version, header_bytes) + bytes(100)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (with_prefix(b"something", 1, 10), "not a saved session"),
        (with_prefix(b"puna-kv\0", 2, 10), "version 2 of the format"),
        (with_prefix(b"puna-kv\0", 1, 2**32 - 1), "header of 4294967295 bytes"),
    ],
)
def test_a_strange_beginning_is_named(saved: tuple[Path, bytes], data: bytes, text: str):
    with pytest.raises(CheckpointError, match=text):
        read_header(damaged(saved, data))


@pytest.mark.parametrize("field", ["num_tokens", "block_bytes", "num_layers"])
@pytest.mark.parametrize("number", [0, -1, 2**31, 2**80])
def test_a_header_with_valid_checksum_is_not_trusted_either(tmp_path: Path, field: str, number: int):
    fields = msgspec.to_builtins(header(40))
    (fields if field == "num_tokens" else fields["kv"])[field] = number
    encoded = msgspec.json.encode(fields) if number < 2**64 else repr(fields).replace("'", '"').encode()
    prefix = struct.pack("<8sII", b"puna-kv\0", 1, len(encoded))
    checksum = zlib.crc32(prefix + encoded)
    path = tmp_path / "a.kv"
    path.write_bytes(prefix + encoded + struct.pack("<I", checksum) + bytes(100))
    with pytest.raises(CheckpointError, match="corrupt"):
        read_header(path)


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        ("model_id", "sha256-def", "another model: sha256-abc, not sha256-def"),
        ("kv_type", "f16", "another KV cache type: q8_0, not f16"),
        ("num_layers", 4, "another number of layers: 3, not 4"),
        ("block_bytes", 128, "another block size: 64, not 128"),
        ("block_tokens", 32, "another number of tokens in a block: 16, not 32"),
    ],
)
def test_other_kv_is_refused_by_name(field: str, value: object, text: str):
    header(5).require(KV)
    with pytest.raises(CheckpointMismatch, match=text):
        header(5).require(msgspec.structs.replace(KV, **{field: value}))


def test_a_missing_file_is_named(tmp_path: Path):
    with pytest.raises(CheckpointError, match=r"cannot read .*none\.kv: No such file"):
        read_header(tmp_path / "none.kv")


class PowerCut(Exception):
    """What ends a save in the middle."""


def test_a_save_that_fails_leaves_the_old_file_and_no_other(tmp_path: Path):
    path = tmp_path / "a.kv"
    before = write(path, 40)

    def blocks() -> Iterator[NDArray[np.uint8]]:
        yield from content(1000)[1][:10]
        raise PowerCut

    with pytest.raises(PowerCut):
        write_checkpoint(path, header(1000), content(1000)[0], blocks())
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_the_final_name_appears_only_when_everything_is_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    events = []
    sync, replace = os.fsync, Path.replace
    monkeypatch.setattr(os, "fsync", lambda descriptor: events.append("sync") or sync(descriptor))
    monkeypatch.setattr(
        Path, "replace", lambda path, target: events.append("replace") or replace(path, target)
    )
    write(tmp_path / "a.kv", 40)
    assert events == ["sync", "replace", "sync"]


def test_a_directory_that_cannot_be_written_is_named(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="cannot write"):
        write(tmp_path / "file" / "a.kv", 5)


def test_a_header_that_no_reader_would_take_is_not_written(tmp_path: Path):
    with pytest.raises(CheckpointError, match="header"):
        write_checkpoint(tmp_path / "a.kv", header(5, cache_salt="x" * 70_000), *content(5))
    assert list(tmp_path.iterdir()) == []


def test_leftovers_of_a_killed_process_are_removed_once_they_are_old(tmp_path: Path):
    old, new, other = tmp_path / "puna-1.tmp", tmp_path / "puna-2.tmp", tmp_path / "a.kv"
    for path in (old, new, other):
        path.write_bytes(b"x")
    for path in (old, other):
        os.utime(path, (0, 0))
    remove_leftovers(tmp_path)
    assert sorted(tmp_path.iterdir()) == [other, new]
    remove_leftovers(tmp_path / "none")
