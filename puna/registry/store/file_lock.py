"""Locks between processes that share a store: they belong to open files, and end with whoever holds them."""

from __future__ import annotations

import errno
import fcntl

# Some network file systems know no locks; one process alone is then still safe.
_UNKNOWN = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)


def try_lock(descriptor: int, *, shared: bool = False) -> bool:
    """Locks the open file until the descriptor is closed; False if somebody else has it, this process
    included.

    Raises OSError.
    """
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _UNKNOWN:
            raise
    return True
