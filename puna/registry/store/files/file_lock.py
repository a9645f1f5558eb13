"""Locks between processes that share a store: they belong to open files, and end with whoever holds them."""

from __future__ import annotations

import errno
import fcntl

# Some network file systems know no locks, or not these; one process alone is then still safe.
_UNKNOWN = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.EBADF)


def try_lock(descriptor: int) -> bool:
    """Locks the open file until the descriptor is closed; False if somebody else has it, this process
    included.

    Raises OSError.
    """
    return _lock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def share_lock(descriptor: int) -> None:
    """Likewise, with others who share; waits for who does not. Raises OSError."""
    _lock(descriptor, fcntl.LOCK_SH)


def unlock(descriptor: int) -> None:
    """Before the descriptor is closed. Raises OSError."""
    _lock(descriptor, fcntl.LOCK_UN)


def _lock(descriptor: int, operation: int) -> bool:
    try:
        fcntl.flock(descriptor, operation)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _UNKNOWN:
            raise
    return True
