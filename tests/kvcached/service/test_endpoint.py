"""One live service per socket; what a killed one left behind is removed, and nothing else."""

from __future__ import annotations

import fcntl
import signal
import socket
import stat
import subprocess
import sys
import threading

import pytest

from puna.kvcached.service import shared_memory
from puna.kvcached.service.endpoint import open_endpoint
from puna.kvcached.service.shared_memory import AlreadyOwned, OutOfSharedMemory, SharedMemory

pytestmark = pytest.mark.native

NEVER = threading.Event()


def test_only_the_user_may_connect_and_nothing_is_left(tmp_path):
    path = tmp_path / "s.sock"
    with open_endpoint(path, tmp_path) as endpoint:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
        endpoint.memory.create(1, 5000, NEVER)
    assert list(tmp_path.iterdir()) == []


def test_second_service_is_refused(tmp_path):
    path = tmp_path / "s.sock"
    (tmp_path / "link").symlink_to(tmp_path)
    with open_endpoint(path, tmp_path):
        for same in (path, tmp_path / "link" / "s.sock"):
            with pytest.raises(OSError, match="Address already in use"), open_endpoint(same, tmp_path):
                pass
        with open_endpoint(tmp_path / "other.sock", tmp_path):
            pass
        assert path.exists()


def test_another_programs_socket_is_refused(tmp_path):
    path = tmp_path / "s.sock"
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path))
        other.listen()
        with pytest.raises(OSError, match="Address already in use"), open_endpoint(path, tmp_path):
            pass
        assert path.exists()


def test_file_is_not_removed(tmp_path):
    path = tmp_path / "precious"
    path.write_text("text")
    with pytest.raises(FileExistsError), open_endpoint(path, tmp_path):
        pass
    assert path.read_text() == "text"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("name", ["nowhere/s.sock", "s" * 200])
def test_path_that_cannot_be_bound(tmp_path, name):
    with pytest.raises(OSError, match=r"No such file|too long"), open_endpoint(tmp_path / name, tmp_path):
        pass
    assert list(tmp_path.iterdir()) == []


KILLED = """
import os, signal, sys, threading
from pathlib import Path
from puna.kvcached.service.endpoint import open_endpoint
with open_endpoint(Path(sys.argv[1]), Path(sys.argv[2])) as endpoint:
    for key in range(3):
        endpoint.memory.create(key, 4096, threading.Event())
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("next_name", ["s.sock", "other.sock"])
def test_leftovers_of_a_killed_service_are_removed(tmp_path, next_name):
    names, sockets = tmp_path / "shm", tmp_path / "sockets"
    names.mkdir()
    sockets.mkdir()
    with open_endpoint(tmp_path / "live.sock", names) as live:
        kept = live.memory.create(1, 4096, NEVER)
        killed = subprocess.run([sys.executable, "-c", KILLED, str(sockets / "s.sock"), str(names)])
        assert killed.returncode == -signal.SIGKILL
        assert len(list(names.iterdir())) == 2 + 4
        (names / "puna-somebody-elses").write_text("")
        with open_endpoint(sockets / next_name, names) as endpoint:
            assert len(list(names.iterdir())) == 2 + 1 + 1
            assert (names / kept[1:]).exists()
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(str(sockets / next_name))
            endpoint.memory.create(0, 4096, NEVER)


def test_names_have_one_owner_however_many_want_them(tmp_path):
    owners: list[int] = []

    def own() -> None:
        for _ in range(200):
            try:
                memory = SharedMemory("name", tmp_path)
            except AlreadyOwned:
                continue
            owners.append(1)
            assert len(owners) == 1
            owners.pop()
            memory.close()

    # Each descriptor has a lock of its own, so threads are as good as processes.
    threads = [threading.Thread(target=own) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert list(tmp_path.iterdir()) == []


def test_lock_on_a_file_that_its_last_owner_removes(tmp_path, monkeypatch):
    last, flock = [SharedMemory("name", tmp_path)], fcntl.flock

    def flock_too_late(descriptor: int, operation: int) -> None:
        if last:
            last.pop().close()
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", flock_too_late)
    memory = SharedMemory("name", tmp_path)
    with pytest.raises(AlreadyOwned):
        SharedMemory("name", tmp_path)
    memory.close()
    assert list(tmp_path.iterdir()) == []


def test_removed_names_are_no_surprise(tmp_path):
    memory = SharedMemory("name", tmp_path)
    name = memory.create(1, 4096, NEVER)
    (tmp_path / name[1:]).unlink()
    memory.remove(name)
    memory.close()


@pytest.fixture
def small(tmp_path):
    """A /dev/shm of one MiB."""
    directory = tmp_path / "small"
    directory.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", directory]).returncode:
        pytest.skip("file systems cannot be mounted here")
    yield directory
    subprocess.run(["umount", directory], check=True)


@pytest.mark.parametrize("is_foreseen", [True, False])
def test_directory_that_is_full(small, monkeypatch, is_foreseen):
    if not is_foreseen:
        monkeypatch.setattr(SharedMemory, "free_bytes", lambda _: 1 << 40)
        monkeypatch.setattr(shared_memory, "_STEP_BYTES", 256 << 10)
    memory = SharedMemory("name", small)
    kept = memory.create(1, 400 << 10, NEVER)
    with pytest.raises(OutOfSharedMemory, match=str(small)):
        memory.create(2, 700 << 10, NEVER)
    memory.create(3, 600 << 10, NEVER)
    memory.remove(kept)
    memory.create(4, 400 << 10, NEVER)
    memory.close()
    assert list(small.iterdir()) == []


def test_call_off(tmp_path):
    memory, stop = SharedMemory("name", tmp_path), threading.Event()
    stop.set()
    with pytest.raises(InterruptedError):
        memory.create(1, 4096, stop)
    assert len(list(tmp_path.iterdir())) == 1
    memory.close()
