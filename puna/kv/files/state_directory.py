"""A directory for state that outlives the process. Files of other users are neither touched nor believed.

Everything goes by descriptor, relative to a directory that was checked when it was opened: a name in it never
leads elsewhere, and nobody waits for the other end of a pipe.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import stat
import time
import weakref
from collections.abc import Container, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_LEFTOVER_AGE_S = 3600.0
_OTHERS_CAN_WRITE = 0o022
_BARRED = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_TEMPORARY = ("puna-", ".tmp")


class UnsafeState(OSError):
    """State that others may have written; the text says why, and what to do."""


class StateDirectory:
    """An open one that only we and root can write to. For any thread; closed by close(), or with its last
    reference."""

    def __init__(self, descriptor: int, path: Path) -> None:
        """Takes the descriptor; raises UnsafeState, and closes it, if others can write to the directory."""
        self.path = path
        self._descriptor = descriptor
        self.close = weakref.finalize(self, os.close, descriptor)
        _require_ours(os.fstat(descriptor), path)

    def __enter__(self) -> StateDirectory:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @classmethod
    def open(cls, path: Path, *, make: bool = True) -> StateDirectory:
        """Makes it, for the owner only, if there is none. Raises UnsafeState, OSError."""
        if make:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        link = path.lstat()
        if stat.S_ISLNK(link.st_mode):  # a user may have moved the directory; others may not
            _require_owner(link, path)
            path = path.resolve()
        return cls(os.open(path, os.O_RDONLY | os.O_DIRECTORY | _BARRED), path)

    def subdirectory(self, name: str, *, make: bool = False) -> StateDirectory:
        """Raises UnsafeState, OSError."""
        if make:
            with suppress(FileExistsError):
                os.mkdir(name, 0o700, dir_fd=self._descriptor)
        descriptor = os.open(name, os.O_RDONLY | os.O_DIRECTORY | _BARRED, dir_fd=self._descriptor)
        return StateDirectory(descriptor, self.path / name)

    @contextmanager
    def opened(self, name: str, flags: int) -> Iterator[int]:
        """A file that is there. Raises OSError, also for what is no regular file."""
        descriptor = self.open_file(name, flags)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def open_file(self, name: str, flags: int = os.O_RDONLY) -> int:
        """A descriptor, the caller's to close, of a file that is there. Raises OSError, also for what is no
        regular file."""
        descriptor = os.open(name, flags | _BARRED, dir_fd=self._descriptor)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise OSError(errno.EINVAL, "not a regular file", name)
        return descriptor

    def create_temporary(self) -> tuple[int, str]:
        """A new file, readable for the owner only, to be renamed when it is whole. (descriptor, name)"""
        name = secrets.token_hex(8).join(_TEMPORARY)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _BARRED
        return os.open(name, flags, 0o600, dir_fd=self._descriptor), name

    def status(self, name: str) -> os.stat_result:
        """Of a link itself. Raises OSError."""
        return os.stat(name, dir_fd=self._descriptor, follow_symlinks=False)

    def set_modified(self, name: str, modified_ns: int) -> None:
        """Raises OSError."""
        with self.opened(name, os.O_RDONLY) as descriptor:  # a caged process changes no time by name
            os.utime(descriptor, ns=(modified_ns, modified_ns))

    def replace(self, source: str, target: str) -> None:
        """Renames a file, in place of another. Raises OSError."""
        os.replace(source, target, src_dir_fd=self._descriptor, dst_dir_fd=self._descriptor)

    def remove(self, name: str) -> None:
        """Raises OSError."""
        os.unlink(name, dir_fd=self._descriptor)

    def clear(self, keep: Container[str] = ()) -> None:
        """Removes all files but those. Raises OSError."""
        for name in self.names():
            if name not in keep:
                with suppress(OSError):
                    self.remove(name)

    def remove_subdirectory(self, name: str) -> None:
        """An empty one. Raises OSError."""
        os.rmdir(name, dir_fd=self._descriptor)

    def names(self) -> list[str]:
        """Of all that is there. Raises OSError."""
        # A descriptor of its own: threads that list at the same time would share one's position.
        descriptor = os.open(".", os.O_RDONLY | os.O_DIRECTORY | _BARRED, dir_fd=self._descriptor)
        try:
            return os.listdir(descriptor)  # noqa: PTH208 pathlib knows no descriptors
        finally:
            os.close(descriptor)

    def lock(self) -> bool:
        """False: somebody else has opened and locked it; until it is closed. Raises OSError."""
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def sync(self) -> None:
        """So that a power cut does not undo a renaming. Raises OSError."""
        os.fsync(self._descriptor)

    def free_bytes(self) -> int:
        """Of its file system. Raises OSError."""
        status = os.fstatvfs(self._descriptor)
        return status.f_bavail * status.f_frsize

    def remove_leftovers(self) -> None:
        """Removes what killed processes left: temporary files that nobody has written to for an hour."""
        begin, end = _TEMPORARY
        with suppress(OSError):
            for name in self.names():
                if name.startswith(begin) and name.endswith(end):
                    with suppress(OSError):  # gone already
                        if abs(time.time() - self.status(name).st_mtime) > _LEFTOVER_AGE_S:
                            self.remove(name)


def _require_ours(status: os.stat_result, path: Path) -> None:
    _require_owner(status, path)
    if status.st_mode & _OTHERS_CAN_WRITE:
        mode = stat.S_IMODE(status.st_mode)
        raise UnsafeState(f"others can write to {path} (mode {mode:04o}): make that impossible by chmod go-w")


def _require_owner(status: os.stat_result, path: Path) -> None:
    if status.st_uid not in (os.geteuid(), 0):
        raise UnsafeState(f"{path} belongs to somebody else (user id {status.st_uid})")
