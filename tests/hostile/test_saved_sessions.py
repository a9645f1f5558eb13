"""Whatever is done to the files of saved sessions: they are refused, and the session that is there stays."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import pytest

from puna.daemon.sessions import read_state_key
from puna.engine import EngineCore
from puna.engine.offload.session_status import SessionError
from puna.kv.files.saved_sessions import SavedSessions
from puna.kv.files.session_manifest import SavedSessionError
from tests.engine.offload.saved_sessions import load, save
from tests.engine.offload.test_engine_sessions import cached_tokens, pinned, saving_engine, talk
from tests.hostile.state import CONTENT, KIND, swap

pytestmark = pytest.mark.native


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[int]]:
    """A directory with the sessions a and b, and what was said in a."""
    directory = tmp_path_factory.mktemp("saved")
    engine = saving_engine(directory)
    history = talk(engine, "a", list(range(50)))
    save(engine.sessions, "toy", "a")
    talk(engine, "b", list(range(50, 90)))
    save(engine.sessions, "toy", "b")
    engine.close()
    return directory, history


def check_refused(engine: EngineCore, name: str = "a") -> None:
    before = pinned(engine)
    with pytest.raises((SavedSessionError, SessionError)):
        load(engine.sessions, "toy", name)
    assert pinned(engine) == before
    engine.check()


@pytest.mark.parametrize("seed", range(60))
def test_damaged_files_are_refused(saved: tuple[Path, list[int]], tmp_path: Path, seed: int):
    rng = random.Random(seed)
    directory = shutil.copytree(saved[0], tmp_path / "sessions")
    path = rng.choice(sorted((directory / "toy-a.session").iterdir()))
    before = path.read_bytes()
    rng.choice(CONTENT + KIND)(path, rng)
    engine = saving_engine(directory)
    if path.is_file() and is_as_good(path, before):
        load(engine.sessions, "toy", "a")
    else:
        check_refused(engine)
        assert path.exists() or path.is_symlink(), "nothing is removed"
    talk(engine, "a", list(range(50)))
    if path.is_dir():
        with pytest.raises(SavedSessionError, match="Is a directory"):
            save(engine.sessions, "toy", "a")
    else:
        save(engine.sessions, "toy", "a")  # in place of what is damaged
        load(engine.sessions, "toy", "a")
    engine.close()


def is_as_good(path: Path, before: bytes) -> bool:
    """As it was, but for a hint that sessions have no use for, and what is behind the block."""
    with path.open("rb") as file:
        after = file.read(len(before) + 1)
    if path.suffix != ".kv":
        return after == before
    return after[:156] + after[256 : len(before)] == before[:156] + before[256:]


def test_sound_files_in_other_places_are_refused(saved: tuple[Path, list[int]], tmp_path: Path):
    directory = shutil.copytree(saved[0], tmp_path / "sessions")
    engine = saving_engine(directory)
    swap(
        [directory / "toy-a.session" / "manifest", directory / "toy-b.session" / "manifest"], random.Random(0)
    )
    check_refused(engine, "a")
    check_refused(engine, "b")
    shutil.rmtree(directory / "toy-a.session")
    shutil.copytree(saved[0] / "toy-a.session", directory / "toy-a.session")
    swap(sorted((directory / "toy-a.session").glob("*.kv")), random.Random(0))
    check_refused(engine, "a")
    engine.close()


def test_a_session_of_another_key_is_refused_and_an_own_one_is_not(saved: tuple[Path, list[int]]):
    engine = saving_engine(saved[0])
    load(engine.sessions, "toy", "a")
    assert cached_tokens(engine, saved[1]) == len(saved[1]) - 1
    engine.close()
    engine = saving_engine(saved[0], state_key=bytes(31) + b"1")
    check_refused(engine)
    engine.close()


def test_a_list_leaves_out_what_is_no_session(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    directory = tmp_path / "sessions"
    for name in ("pipe", "link", "empty", "old"):
        (directory / f"{name}-a.session").mkdir(mode=0o700, parents=True)
    directory.chmod(0o700)
    os.mkfifo(directory / "pipe-a.session" / "manifest")
    (directory / "link-a.session" / "manifest").symlink_to("/dev/zero")
    (directory / "old-a.session" / "manifest").write_bytes(b"puna-kv\0\1\0\0\0" + bytes(100))
    (directory / "elsewhere-a.session").symlink_to("/proc")
    (directory / "old-a.kv").write_bytes(b"puna-kv\0\2\0\0\0" + bytes(100))
    os.mkfifo(directory / "pipe-a.kv")
    (directory / "file-a.session").touch()
    assert SavedSessions(directory, lambda: bytes(32)).list() == {}
    assert sum("was saved by an older version" in message for message in caplog.messages) == 2
    assert len(caplog.messages) == 7
    assert all(part.exists() or part.is_symlink() for part in directory.iterdir())


def test_a_directory_that_others_can_write_to_is_refused(tmp_path: Path):
    directory = tmp_path / "sessions"
    directory.mkdir()
    directory.chmod(0o770)
    saved = SavedSessions(directory, lambda: bytes(32))
    for use in (saved.prepare, lambda: saved.open("toy", "a"), lambda: saved.remove("toy", "a")):
        with pytest.raises(SavedSessionError, match=r"others can write to .*sessions \(mode 0770\)"):
            use()


@pytest.mark.parametrize(("mode", "size"), [(0o640, 32), (0o604, 32), (0o600, 31), (0o600, 0)])
def test_a_key_that_others_may_know_is_refused(tmp_path: Path, mode: int, size: int):
    key = tmp_path / "key"
    key.write_bytes(bytes(size))
    key.chmod(mode)
    with pytest.raises(SavedSessionError, match="without a key"):
        read_state_key(key)
