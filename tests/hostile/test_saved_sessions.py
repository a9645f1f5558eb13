"""Whatever is done to the files of saved sessions: they are refused, and the session that is there stays."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import pytest

from puna.daemon.session_files import SessionFiles
from puna.engine import EngineCore
from puna.engine.offload.session_status import SessionError
from puna.kv.checkpoint import CheckpointError
from tests.engine.test_engine_sessions import cached_tokens, load, pinned, save, talk
from tests.engine.toy import toy_engine
from tests.hostile.state import CONTENT, KIND, swap

pytestmark = pytest.mark.native


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[int]]:
    """A directory with the sessions a and b, and what was said in a."""
    directory = tmp_path_factory.mktemp("saved")
    engine = toy_engine()
    history = talk(engine, "a", list(range(50)))
    save(engine, "a", directory / "a")
    talk(engine, "b", list(range(50, 90)))
    save(engine, "b", directory / "b")
    engine.close()
    return directory, history


def check_refused(engine: EngineCore, path: Path) -> None:
    before = pinned(engine)
    with pytest.raises((CheckpointError, SessionError, FileNotFoundError)):
        load(engine, path.name, path)
    for transfer in list(engine.sessions._transfers):
        engine.sessions.end_load(transfer, succeeded=False)
    assert pinned(engine) == before
    engine.check()


@pytest.mark.parametrize("seed", range(60))
def test_damaged_files_are_refused(saved: tuple[Path, list[int]], tmp_path: Path, seed: int):
    rng = random.Random(seed)
    path = Path(shutil.copy(saved[0] / "a", tmp_path))
    before = path.read_bytes()
    rng.choice(CONTENT + KIND)(path, rng)
    if path.is_file() and path.stat().st_size == len(before) and path.read_bytes() == before:
        return  # as it was
    engine = toy_engine()
    check_refused(engine, path)
    engine.close()


def test_sound_files_under_other_names_are_refused(saved: tuple[Path, list[int]], tmp_path: Path):
    for name in ("a", "b"):
        shutil.copy(saved[0] / name, tmp_path)
    swap([tmp_path / "a", tmp_path / "b"], random.Random(0))
    engine = toy_engine()
    check_refused(engine, tmp_path / "a")
    check_refused(engine, tmp_path / "b")
    engine.close()


def test_a_session_of_another_key_is_refused_and_an_own_one_is_not(saved: tuple[Path, list[int]]):
    engine = toy_engine()
    load(engine, "a", saved[0] / "a")
    assert cached_tokens(engine, saved[1]) == len(saved[1]) - 1
    engine.close()


def test_a_list_leaves_out_what_is_no_session(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    files = SessionFiles(tmp_path / "sessions", tmp_path / "key")
    (tmp_path / "sessions").mkdir(mode=0o700)
    os.mkfifo(tmp_path / "sessions" / "pipe-a.kv")
    (tmp_path / "sessions" / "link-a.kv").symlink_to("/dev/zero")
    (tmp_path / "sessions" / "directory-a.kv").mkdir()
    (tmp_path / "sessions" / "empty-a.kv").touch()
    (tmp_path / "sessions" / "old-a.kv").write_bytes(b"puna-kv\0\1\0\0\0" + bytes(100))
    assert files.list() == {}
    assert sum("was saved by an older version" in message for message in caplog.messages) == 1
    assert len(caplog.messages) == 5


def test_a_directory_that_others_can_write_to_is_refused(tmp_path: Path):
    directory = tmp_path / "sessions"
    directory.mkdir()
    directory.chmod(0o770)
    files = SessionFiles(directory, tmp_path / "key")
    for use in (files.begin, files.open, files.remove):
        with pytest.raises(CheckpointError, match=r"others can write to .*sessions \(mode 0770\)"):
            use("sha256-abc", "a")


@pytest.mark.parametrize(("mode", "size"), [(0o640, 32), (0o604, 32), (0o600, 31), (0o600, 0)])
def test_a_key_that_others_may_know_is_refused(tmp_path: Path, mode: int, size: int):
    key = tmp_path / "key"
    key.write_bytes(bytes(size))
    key.chmod(mode)
    with pytest.raises(CheckpointError, match="without a key"):
        SessionFiles(tmp_path / "sessions", key).begin("sha256-abc", "a")
