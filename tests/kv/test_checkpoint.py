"""A checkpoint brings back exactly what was saved, or says why it cannot; it never half exists."""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import numpy as np
import pytest
from blake3 import blake3
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
    write_checkpoint,
)
from puna.kv.checkpoint_files import CheckpointFiles
from puna.kv.state_key import derive_key

pytestmark = pytest.mark.unit

CREATED = datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC)
KEY = bytes(range(32))
KV = KvIdentity(model_id="sha256-abc", kv_type="q8_0", num_layers=3, block_bytes=64)


def header(num_tokens: int, **fields: object) -> CheckpointHeader:
    values = {"kv": KV, "name": "n", "namespace": "s", "created_at": CREATED, **fields}
    return CheckpointHeader(num_tokens=num_tokens, **values)


def content(num_tokens: int) -> tuple[NDArray[np.int32], list[NDArray[np.uint8]]]:
    rng = np.random.default_rng(num_tokens)
    tokens = rng.integers(0, 2**31, num_tokens).astype(np.int32)
    return tokens, list(rng.integers(0, 256, (-(-num_tokens // 16), 64)).astype(np.uint8))


def write(
    path: Path,
    num_tokens: int,
    key: bytes = KEY,
    blocks: Iterable[NDArray[np.uint8]] | None = None,
    **fields: object,
) -> bytes:
    draft = CheckpointFiles(path.parent).begin(path.name)
    tokens, all_blocks = content(num_tokens)
    try:
        write_checkpoint(draft.descriptor, key, header(num_tokens, **fields), tokens, blocks or all_blocks)
    except BaseException:
        draft.discard()
        raise
    draft.publish()
    return path.read_bytes()


def opened(path: Path) -> int:
    return CheckpointFiles(path.parent).open(path.name)


def header_of(path: Path, key: bytes = KEY) -> CheckpointHeader:
    return read_header(opened(path), key, path.name)


def read(path: Path) -> tuple[CheckpointHeader, list[int], list[bytes]]:
    with Checkpoint(opened(path), KEY, path.name) as checkpoint:
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
    assert header_of(tmp_path / "a.kv") == expected[0]


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
            header_of(damaged(saved, saved[1][:length]))  # before anything is allocated for it


def test_what_comes_behind_the_end_is_noticed(saved: tuple[Path, bytes]):
    with pytest.raises(CheckpointError, match="corrupt"):
        header_of(damaged(saved, saved[1] + b"\0"))


def test_blocks_that_changed_places_are_noticed(saved: tuple[Path, bytes]):
    size = KV.block_bytes + 32  # with the MAC
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
    name = derive_key(derive_key(KEY, b"sessions"), b"name")[:8]
    return struct.pack("<8sII8s", magic, version, header_bytes, name) + bytes(100)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (with_prefix(b"something", 2, 10), "not a saved session"),
        (with_prefix(b"puna-kv\0", 1, 10), "damaged.kv was saved by an older version of puna"),
        (with_prefix(b"puna-kv\0", 3, 10), "version 3 of the format"),
        (with_prefix(b"puna-kv\0", 2, 2**32 - 1), "header of 4294967295 bytes"),
        (with_prefix(b"puna-kv\0", 2, 10)[:16] + bytes(100), "saved with another key"),
    ],
)
def test_a_strange_beginning_is_named(saved: tuple[Path, bytes], data: bytes, text: str):
    with pytest.raises(CheckpointError, match=text):
        header_of(damaged(saved, data))


@pytest.mark.parametrize("field", ["num_tokens", "block_bytes", "num_layers"])
@pytest.mark.parametrize("number", [0, -1, 2**31, 2**80])
def test_a_header_with_a_valid_mac_is_not_trusted_either(tmp_path: Path, field: str, number: int):
    fields = msgspec.to_builtins(header(40))
    (fields if field == "num_tokens" else fields["kv"])[field] = number
    encoded = msgspec.json.encode(fields) if number < 2**64 else repr(fields).replace("'", '"').encode()
    data = with_prefix(b"puna-kv\0", 2, len(encoded))[:24] + encoded
    mac = blake3(data, key=derive_key(KEY, b"sessions")).digest()
    path = tmp_path / "a.kv"
    path.write_bytes(data + mac + bytes(100))
    with pytest.raises(CheckpointError, match="corrupt"):
        header_of(path)


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
    header(5).require(KV, "n")
    with pytest.raises(CheckpointMismatch, match=text):
        header(5).require(msgspec.structs.replace(KV, **{field: value}), "n")


def test_another_name_is_refused():
    with pytest.raises(CheckpointMismatch, match="another name: n, not m"):
        header(5).require(KV, "m")


def test_who_has_another_key_can_neither_read_nor_forge(tmp_path: Path):
    write(tmp_path / "a.kv", 40, key=bytes(32))
    with pytest.raises(CheckpointError, match="another key"):
        header_of(tmp_path / "a.kv")


class PowerCut(Exception):
    """What ends a save in the middle."""


def test_a_save_that_fails_leaves_the_old_file_and_no_other(tmp_path: Path):
    path = tmp_path / "a.kv"
    before = write(path, 40)

    def blocks() -> Iterator[NDArray[np.uint8]]:
        yield from content(1000)[1][:10]
        raise PowerCut

    with pytest.raises(PowerCut):
        write(path, 1000, blocks=blocks())
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_the_final_name_appears_only_when_everything_is_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    events = []
    sync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda descriptor: events.append("sync") or sync(descriptor))
    monkeypatch.setattr(os, "replace", lambda *a, **k: events.append("replace") or replace(*a, **k))
    write(tmp_path / "a.kv", 40)
    assert events == ["sync", "replace", "sync"]


def test_a_directory_that_cannot_be_written_is_named(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="cannot write"):
        write(tmp_path / "file" / "a.kv", 5)


def test_a_header_that_no_reader_would_take_is_not_written(tmp_path: Path):
    with pytest.raises(CheckpointError, match="header"):
        write(tmp_path / "a.kv", 5, namespace="x" * 70_000)
    assert list(tmp_path.iterdir()) == []


def test_leftovers_of_a_killed_process_are_removed_once_they_are_old(tmp_path: Path):
    old, new, future = tmp_path / "puna-1.tmp", tmp_path / "puna-2.tmp", tmp_path / "puna-3.tmp"
    other = tmp_path / "a.kv"
    for path in (old, new, future, other):
        path.write_bytes(b"x")
    for path in (old, other):
        os.utime(path, (0, 0))
    os.utime(future, (2**32, 2**32))
    CheckpointFiles(tmp_path).remove_leftovers()
    assert sorted(tmp_path.iterdir()) == [other, new]
    CheckpointFiles(tmp_path / "none").remove_leftovers()
