"""The directory of one server's socket: its own, with a random name, and gone when nobody needs it."""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from puna.kv.files.state_directory import StateDirectory

SOCKET_NAME = "server.sock"
"""llama.cpp takes a host that ends so for a Unix socket."""


class SocketDirectory(NamedTuple):
    """As long as the descriptor is open in some process, nobody takes the directory for a dead one's."""

    path: Path
    lock: int


def make_socket_directory(run: Path) -> SocketDirectory:
    """In `run`, which is made if there is none, and from which those of processes that were killed are
    removed. Raises UnsafeState if others can write to it, OSError.
    """
    StateDirectory.open(run).close()
    with _only_one(run):
        for other in run.iterdir():
            with suppress(OSError), _opened(other) as descriptor:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                remove_socket_directory(other)
        path = run / secrets.token_hex(8)
        path.mkdir(mode=0o700)
        lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        fcntl.flock(lock, fcntl.LOCK_EX)
        return SocketDirectory(path, lock)


def remove_socket_directory(path: Path) -> None:
    """With the files in it, if it is still there."""
    with suppress(OSError):
        for file in path.iterdir():
            file.unlink()
        path.rmdir()


@contextmanager
def _only_one(run: Path) -> Iterator[None]:
    """What another process has made, but not locked yet, would be taken for a dead one's."""
    with _opened(run) as descriptor:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield


@contextmanager
def _opened(directory: Path) -> Iterator[int]:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
