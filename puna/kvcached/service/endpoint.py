"""Where a service is found: its socket, and the names of its shared memory, both of one live process only."""

from __future__ import annotations

import os
import socket
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from puna.kvcached.service.shared_memory import SHM_DIR, AlreadyOwned, SharedMemory
from puna.unix_socket import in_use, listen_privately


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
        raise in_use() from None
    try:
        with listen_privately(path) as listener:
            try:
                yield Endpoint(listener, memory)
            finally:
                path.unlink(missing_ok=True)
    finally:
        memory.close()
