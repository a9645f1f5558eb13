"""Directories of servers' sockets: whose they are, and when they go."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from puna.kv.files.state_directory import UnsafeState
from puna.worker.llamacpp.socket_directory import (
    SOCKET_NAME,
    make_socket_directory,
    remove_socket_directory,
)

pytestmark = pytest.mark.unit


def test_those_of_the_dead_go_when_a_new_one_is_made_and_others_stay(tmp_path: Path):
    run = tmp_path / "run"
    dead, living = make_socket_directory(run), make_socket_directory(run)
    (dead.path / SOCKET_NAME).touch()
    os.close(dead.lock)  # as when its process is killed
    new = make_socket_directory(run)
    assert sorted(run.iterdir()) == sorted([living.path, new.path])
    assert {path.stat().st_mode & 0o777 for path in (run, living.path, new.path)} == {0o700}
    (new.path / SOCKET_NAME).touch()
    for directory in (living, new):
        remove_socket_directory(directory.path)
        os.close(directory.lock)
    assert list(run.iterdir()) == []


def test_where_others_can_write_none_is_made(tmp_path: Path):
    run = tmp_path / "run"
    run.mkdir()
    run.chmod(0o777)
    with pytest.raises(UnsafeState):
        make_socket_directory(run)
