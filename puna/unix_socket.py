"""Unix sockets of a service: only this user may connect, and what a killed process left is removed."""

from __future__ import annotations

import errno
import os
import socket
import stat
from pathlib import Path


def listen_privately(path: Path) -> socket.socket:
    """A listening socket at `path`, which the caller removes. Raises OSError: somebody listens there, it is
    something else, or others could put something else in its place.
    """
    _check_directory(path.parent)
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


def _check_directory(path: Path) -> None:
    status = path.stat()
    # In a sticky directory such as /tmp, only the owner of a file can replace it.
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not status.st_mode & stat.S_ISVTX:
        raise PermissionError(errno.EACCES, "others may write to its directory")
    if status.st_uid not in (0, os.geteuid()):
        raise PermissionError(errno.EACCES, "its directory belongs to another user")


def _remove_stale(path: Path) -> None:
    """A socket of this user on which nobody listens any more. Raises OSError if there is anything else."""
    try:
        status = path.lstat()
        if not stat.S_ISSOCK(status.st_mode):
            raise FileExistsError(errno.EEXIST, "file exists, and is not a socket")
        with socket.socket(socket.AF_UNIX) as probe:
            probe.connect(str(path))
    except ConnectionRefusedError:
        if status.st_uid != os.geteuid():
            raise PermissionError(errno.EACCES, "a socket of another user is there") from None
        path.unlink(missing_ok=True)
    except FileNotFoundError:
        return
    else:
        raise in_use()


def in_use() -> OSError:
    """That somebody listens there already."""
    return OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
