"""Files bring back exactly the session that was saved, or say why they cannot; it never half exists."""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import numpy as np
import pytest
from blake3 import blake3
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from puna.backends.base import KvGroup
from puna.kv.blocks import blocks_for
from puna.kv.files.identity import KvIdentity
from puna.kv.files.saved_sessions import SavedSessions
from puna.kv.files.session_manifest import SavedSessionError, SavedSessionMismatch, SessionHeader
from puna.kv.files.state_directory import StateDirectory
from puna.kv.files.state_key import derive_key

pytestmark = pytest.mark.unit

CREATED = datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC)
KEY = bytes(range(32))
GROUPS = KvGroup(num_layers=3, block_bytes=64), KvGroup(num_layers=1, block_bytes=32, window=20)
KV = KvIdentity(model_id="sha256-abc", kv_type="q8_0", groups=GROUPS)


def header(num_tokens: int = 40, **fields: object) -> SessionHeader:
    values = {"kv": KV, "kernels": "cpu", "name": "n", "namespace": "s", "created_at": CREATED, **fields}
    return SessionHeader(num_tokens=num_tokens, **values)


def tokens_of(number: int) -> bytes:
    return np.random.default_rng(number).integers(0, 2**31, number, np.int32).tobytes()


def content(number: int, group: int) -> NDArray[np.uint8]:
    return np.full(GROUPS[group].block_bytes, 100 * group + number % 100, dtype=np.uint8)


class Disk(SavedSessions):
    """Blocks are full of their number and group."""

    def __init__(self, path: Path, key: bytes = KEY) -> None:
        super().__init__(path, lambda: key)

    def save(self, header: SessionHeader, tokens: bytes | None = None) -> None:
        tokens = tokens_of(header.num_tokens) if tokens is None else tokens
        self.write(header, tokens, content, lambda: None)

    def load(self, name: str = "n") -> tuple[SessionHeader, bytes, list[tuple[int, ...]]]:
        """Header, tokens, and what each block holds."""
        session, held = self.open("sha256-abc", name), []
        for _, group, stored in session.blocks():
            target = np.empty(GROUPS[group].block_bytes, dtype=np.uint8)
            session.read_block(stored, group, target)
            held.append(tuple(set(target.tolist())))
        return session.header, session.tokens, held

    @property
    def directory(self) -> Path:
        (directory,) = self.path.iterdir()
        return directory


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path / "sessions")


@pytest.mark.parametrize("num_tokens", [1, 15, 16, 17, 1000])
def test_what_is_written_is_read(disk: Disk, num_tokens: int):
    of = header(num_tokens)
    disk.save(of)
    last = blocks_for(num_tokens)
    expected = [(100 * g + n % 100,) for n in range(last) for g in (0, 1) if n >= of.first_blocks[g]]
    assert disk.load() == (of, tokens_of(num_tokens), expected)
    assert disk.find("sha256-abc", "n") == of
    assert disk.list() == {("sha256-abc", "n"): of}
    assert of.num_bytes == sum(path.stat().st_size for path in disk.path.rglob("*.kv"))


@pytest.mark.parametrize(("num_tokens", "first"), [(10, 0), (19, 0), (48, 1), (63, 1), (64, 2), (100, 4)])
def test_of_a_window_only_what_it_reaches_is_kept(num_tokens: int, first: int):
    assert header(num_tokens).first_blocks == [0, first]


def test_only_the_owner_can_read_it(disk: Disk):
    disk.save(header())
    modes = {stat.S_IMODE(path.stat().st_mode) for path in disk.path.rglob("*") if path.is_file()}
    assert modes == {0o600}
    assert stat.S_IMODE(disk.directory.stat().st_mode) == stat.S_IMODE(disk.path.stat().st_mode) == 0o700


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_changed_byte_is_noticed(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject):
    disk = Disk(tmp_path_factory.mktemp("sessions"))
    disk.save(header())
    path = data.draw(st.sampled_from(sorted(disk.directory.iterdir())))
    damaged = bytearray(path.read_bytes())
    where = data.draw(st.integers(0, len(damaged) - 1))
    is_hint = path.suffix == ".kv" and 156 <= where < 256
    damaged[where] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(damaged)
    if is_hint:
        disk.load()
    else:
        with pytest.raises(SavedSessionError):
            disk.load()


def test_truncated_and_longer_manifests_are_refused(disk: Disk):
    disk.save(header())
    path = disk.directory / "manifest"
    whole = path.read_bytes()
    for size in [*range(0, len(whole), 13), len(whole) - 1]:
        path.write_bytes(whole[:size])
        with pytest.raises(SavedSessionError, match=r"truncated|corrupt"):
            disk.load()
    path.write_bytes(whole + b"?")
    with pytest.raises(SavedSessionError, match=r"is corrupt: .* bytes instead of"):
        disk.find("sha256-abc", "n")


PREFIX = struct.Struct("<8sII8s")


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"GGUF" + bytes(60), "session 'n' is not a saved session"),
        (PREFIX.pack(b"puna-kv\0", 2, 9, bytes(8)) + bytes(60), "has version 2 of the format, known is 3"),
        (PREFIX.pack(b"puna-kv\0", 4, 9, bytes(8)) + bytes(60), "has version 4 of the format, known is 3"),
        (PREFIX.pack(b"puna-kv\0", 3, 9, bytes(8)) + bytes(60), "was saved with another key"),
    ],
)
def test_a_strange_beginning_is_named(disk: Disk, data: bytes, text: str):
    disk.save(header())
    (disk.directory / "manifest").write_bytes(data)
    with pytest.raises(SavedSessionError, match=text):
        disk.load()


@pytest.mark.parametrize("number", [0, -1, 2**31, 2**63])
def test_a_header_with_a_valid_mac_is_not_trusted_either(disk: Disk, number: int):
    disk.save(header())
    key = derive_key(KEY, b"sessions")
    values = msgspec.to_builtins(header()) | {"num_tokens": number}
    encoded = msgspec.json.encode(values)
    front = PREFIX.pack(b"puna-kv\0", 3, len(encoded), derive_key(key, b"name")[:8]) + encoded
    (disk.directory / "manifest").write_bytes(front + blake3(front, key=key).digest())
    with pytest.raises(SavedSessionError, match="is corrupt"):
        disk.load()


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        ("model_id", "sha256-def", "another model: sha256-abc, not sha256-def"),
        ("kv_type", "f16", "another KV cache type: q8_0, not f16"),
        ("groups", GROUPS[:1], "another kind of layers"),
        ("block_tokens", 32, "another number of tokens in a block: 16, not 32"),
    ],
)
def test_other_kv_is_refused_by_name(field: str, value: object, text: str):
    header().require(KV)
    with pytest.raises(SavedSessionMismatch, match=text):
        header().require(msgspec.structs.replace(KV, **{field: value}))


def test_a_session_under_another_name_is_refused(disk: Disk):
    disk.save(header())
    disk.directory.rename(disk.path / "abc-other.session")
    with pytest.raises(SavedSessionError, match="was saved under another name: n, of abc"):
        disk.load("other")
    assert disk.list() == {}


def test_one_file_of_an_older_version_is_refused_by_name_and_can_be_removed(disk: Disk):
    disk.path.mkdir(mode=0o700)
    (disk.path / "abc-n.kv").write_bytes(b"puna-kv\0\2\0\0\0" + bytes(100))
    with pytest.raises(SavedSessionError, match="session 'n' was saved by an older version of puna"):
        disk.load()
    with pytest.raises(FileNotFoundError):
        disk.load("other")
    assert disk.list() == {}
    assert disk.remove("sha256-abc", "n")
    assert not disk.remove("sha256-abc", "n")


def test_who_has_another_key_can_neither_read_nor_forge(disk: Disk):
    disk.save(header())
    with pytest.raises(SavedSessionError, match="another key"):
        Disk(disk.path, bytes(32)).load()


def test_saving_again_writes_only_what_is_new_and_removes_what_is_not_needed(disk: Disk):
    tokens = tokens_of(100)
    disk.save(header(80), tokens[:320])
    before = {path.name: path.stat().st_ino for path in disk.directory.glob("*.kv")}
    disk.save(header(100), tokens)
    after = {path.name: path.stat().st_ino for path in disk.directory.glob("*.kv")}
    assert disk.load()[1] == tokens
    assert len(after) == 7 + 3
    kept = before.keys() & after.keys()
    assert len(kept) == 5 + 1
    assert all(before[name] == after[name] for name in kept)


class PowerCut(BaseException):
    """The process is killed: nothing is cleared up."""


def contents(disk: Disk) -> set[str]:
    return {path.name for path in disk.path.rglob("*")}


@pytest.mark.parametrize("is_first", [True, False])
def test_whenever_it_is_killed_there_is_a_whole_session_or_none(
    disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_first: bool
):
    old, new = header(80, kernels="old"), header(90, kernels="new")
    real, num_calls, calls = {}, 0, 0

    def counted(name: str) -> Callable[..., object]:
        def call(*arguments: object, **fields: object) -> object:
            nonlocal num_calls
            num_calls += 1
            if calls and num_calls >= calls:
                raise PowerCut
            return real[name](*arguments, **fields)

        return call

    for name in ("open", "writev", "replace", "fsync", "unlink", "mkdir", "rmdir", "utime"):
        real[name] = getattr(os, name)
        monkeypatch.setattr(os, name, counted(name))
    seen = set()
    for cut in range(1, 1000, 3):
        disk, calls = Disk(tmp_path / str(cut)), 0
        if not is_first:
            disk.save(old)
        num_calls, calls = 0, cut
        try:
            disk.save(new)
        except PowerCut:
            calls = 0
            disk.remove_leftovers()
            try:
                seen.add(disk.load()[0].kernels)
                assert len(list(disk.path.rglob("*"))) == 2 + len(disk.load()[2])
            except FileNotFoundError:
                seen.add("none")
                assert contents(disk) == set()
        else:
            break
    assert seen == ({"none", "new"} if is_first else {"old", "new"})


def test_a_save_that_fails_leaves_the_old_session_and_nothing_else(disk: Disk):
    disk.save(header(40))
    before = contents(disk)

    def given_up(*_: int) -> NDArray[np.uint8]:
        raise SavedSessionError("given up")

    with pytest.raises(SavedSessionError, match="given up"):
        disk.write(header(90), tokens_of(90), given_up, lambda: None)
    assert contents(disk) == before
    with pytest.raises(SavedSessionError, match="given up"):
        disk.write(header(90, name="other"), tokens_of(90), given_up, lambda: None)
    assert contents(disk) == before


def test_a_directory_that_cannot_be_written_is_named(tmp_path: Path):
    (tmp_path / "file").touch()
    disk = Disk(tmp_path / "file")
    for use in (disk.prepare, lambda: disk.save(header())):
        with pytest.raises(SavedSessionError, match=r"cannot write .*: "):
            use()


def test_a_header_that_no_reader_would_take_is_not_written(disk: Disk):
    with pytest.raises(SavedSessionError, match="header has"):
        disk.save(header(namespace="s" * 70000))
    assert contents(disk) == set()


def test_what_somebody_else_is_writing_is_left_alone(disk: Disk):
    disk.save(header())
    before = contents(disk)
    with StateDirectory.open(disk.directory) as directory:
        assert directory.lock()
        for use in (lambda: disk.save(header(90)), lambda: disk.remove("sha256-abc", "n")):
            with pytest.raises(SavedSessionError, match="is just being written or removed"):
                use()
        disk.remove_leftovers()
    assert contents(disk) == before
    assert disk.remove("sha256-abc", "n")
    assert contents(disk) == set()
