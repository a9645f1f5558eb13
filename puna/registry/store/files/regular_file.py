"""Opening files whose names come from a store: what is no regular file is neither opened nor waited for."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path


def open_regular(path: Path) -> int:
    """A descriptor for reading, the caller's to close; links are followed.

    Raises OSError, also for what is no regular file: opening a pipe waits, opening a device may do anything.
    """
    _check(path.stat(), path)
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        _check(os.fstat(descriptor), path)  # it may have been replaced since
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def read_regular(path: Path, max_bytes: int) -> bytes:
    """The whole file. Raises OSError, also for a file of more than `max_bytes`, of which nothing is read."""
    with os.fdopen(open_regular(path), "rb") as file:
        if os.fstat(file.fileno()).st_size <= max_bytes:
            data = file.read(max_bytes + 1)  # it may grow meanwhile
            if len(data) <= max_bytes:
                return data
    raise OSError(errno.EFBIG, f"larger than {max_bytes} bytes", str(path))


def _check(status: os.stat_result, path: Path) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "not a regular file", str(path))
