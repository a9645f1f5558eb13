"""Where a service is found: its socket, and the names of its shared memory, both of one live process only."""

from __future__ import annotations

import errno
import os
import socket
import stat
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from puna.kvcached.service.shared_memory import SHM_DIR, AlreadyOwned, SharedMemory


class Endpoint(NamedTuple):
    """Both are closed by whoever opened them."""

    listener: socket.socket
    memory: SharedMemory


@contextmanager
def open_endpoint(path: Path, shm_dir: Path = SHM_DIR) -> Generator[Endpoint, None, None]:
    """Only this user may connect. What a killed process left behind is removed. Raises OSError."""
    path = Path(os.path.realpath(path))
    try:
        memory = SharedMemory(f"{os.getuid()}:{path}", shm_dir)
    except AlreadyOwned:
        raise _in_use() from None
    try:
        with _bind(path) as listener:
            try:
                yield Endpoint(listener, memory)
            finally:
                path.unlink(missing_ok=True)
    finally:
        memory.close()


def _bind(path: Path) -> socket.socket:
    _remove_stale(path)
    listener = socket.socket(socket.AF_UNIX)
    mask = os.umask(0o177)
    try:
        listener.bind(str(path))
        listener.listen()
    except BaseException:
        listener.close()
        raise
    finally:
        os.umask(mask)
    return listener


def _remove_stale(path: Path) -> None:
    """A socket on which nobody listens any more. Raises OSError if there is anything else."""
    try:
        if not stat.S_ISSOCK(path.stat().st_mode):
            raise FileExistsError(errno.EEXIST, "file exists, and is not a socket")
        with socket.socket(socket.AF_UNIX) as probe:
            probe.connect(str(path))
    except ConnectionRefusedError:
        path.unlink(missing_ok=True)
    except FileNotFoundError:
        return
    else:
        raise _in_use()


def _in_use() -> OSError:
    return OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
