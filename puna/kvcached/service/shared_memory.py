"""Named POSIX shared memory that has an owner: what a killed one left behind is found and removed."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import sys
import threading
from contextlib import suppress
from pathlib import Path

from puna.config.sizes import binary_size

SHM_DIR = Path("/dev/shm")
"""Where shm_open() looks."""

PREFIX = "puna-kvcached-"
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")

_STEP_BYTES = 64 << 20
"""Memory comes in such steps, between which it can be called off."""


class AlreadyOwned(Exception):
    """Another live process has these names."""


class OutOfSharedMemory(Exception):
    """The text says how much there is."""


class SharedMemory:
    """Objects of one owner. Their names begin with that of a file that he keeps locked while he lives.

    owner: what only one process at a time may be owner of.
    Raises AlreadyOwned, OSError.
    """

    def __init__(self, owner: str, directory: Path = SHM_DIR) -> None:
        self._directory = directory
        self._lock_path = directory / f"{PREFIX}{hashlib.blake2b(owner.encode(), digest_size=8).hexdigest()}"
        lock = _lock(self._lock_path)
        if lock is None:
            raise AlreadyOwned
        self._lock = lock
        self._remove_leftovers()

    def free_bytes(self) -> int:
        """Room for further objects, as far as their directory is concerned."""
        space = os.statvfs(self._directory)
        return space.f_bavail * space.f_frsize if space.f_blocks else sys.maxsize  # no blocks: no limit

    def create(self, key: int, num_bytes: int, stop: threading.Event) -> str:
        """A new object whose memory is all there; returns its name. Slow if it is large.

        key: not used before.
        stop: when set, the object is removed again, and InterruptedError raised.
        Raises OutOfSharedMemory, OSError.
        """
        path = self._directory / f"{self._lock_path.name}-{key:x}"
        if num_bytes > (free := self.free_bytes()):
            raise OutOfSharedMemory(
                f"{binary_size(num_bytes)} are needed, {self._directory} has {binary_size(free)} free"
            )
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            _commit(descriptor, num_bytes, stop)
        except BaseException as error:
            os.ftruncate(descriptor, 0)
            path.unlink(missing_ok=True)
            if isinstance(error, OSError) and error.errno == errno.ENOSPC:
                raise OutOfSharedMemory(f"{self._directory} is full") from error
            raise
        finally:
            os.close(descriptor)
        return f"/{path.name}"

    def remove(self, name: str) -> None:
        """Its memory goes at once, even if somebody has it mapped."""
        path = self._directory / name[1:]
        with suppress(FileNotFoundError):
            os.truncate(path, 0)
            path.unlink()

    def close(self) -> None:
        """Gives up the names. Who has an object mapped keeps its memory: he did nothing wrong."""
        self._unlink_objects(self._lock_path.name)
        self._lock_path.unlink(missing_ok=True)
        os.close(self._lock)

    def _remove_leftovers(self) -> None:
        """Of dead owners: their locks can be had."""
        self._unlink_objects(self._lock_path.name)
        length = len(self._lock_path.name)
        owners = {path.name[:length] for path in self._directory.glob(f"{PREFIX}*")}
        for owner in owners - {self._lock_path.name}:
            with suppress(OSError):  # another user's
                if (lock := _lock(self._directory / owner)) is not None:
                    try:
                        self._unlink_objects(owner)
                        (self._directory / owner).unlink()
                    finally:
                        os.close(lock)

    def _unlink_objects(self, owner: str) -> None:
        for path in self._directory.glob(f"{owner}-*"):
            path.unlink(missing_ok=True)


def _commit(descriptor: int, num_bytes: int, stop: threading.Event) -> None:
    for start in range(0, num_bytes, _STEP_BYTES):
        if stop.is_set():
            raise InterruptedError("nobody wants it any more")
        os.posix_fallocate(descriptor, start, min(_STEP_BYTES, num_bytes - start))


def _lock(path: Path) -> int | None:
    """A descriptor that has the lock while it is open; None if another process has it. Raises OSError."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        with suppress(FileNotFoundError):
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # Its last owner may have removed the file in between; the next one would lock another.
                if os.path.samestat(os.fstat(descriptor), path.stat()):
                    return descriptor
            except BlockingIOError:
                os.close(descriptor)
                return None
        os.close(descriptor)
