"""How much may be written to a directory in a day: solid-state disks wear out by writing."""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Callable
from contextlib import suppress

from puna.kv.files.state_directory import StateDirectory

_FILE = "written"
_ENTRY = struct.Struct("<QQ")  # day since 1970, bytes
_DAY_S = 86400
_UNSYNCED_BYTES = 16 << 20
_UNSYNCED_S = 1.0
"""A process that is killed forgets about no more than what it wrote in either."""


class WriteAllowance:
    """Bytes of this day (UTC), over all processes that use the directory, which remembers them in a file.

    For one thread, except for `is_used_up`.
    """

    def __init__(self, directory: Callable[[], StateDirectory], bytes_per_day: int) -> None:
        """directory: raises OSError."""
        self._directory = directory
        self._bytes_per_day = bytes_per_day
        self._day = -1
        self._num_bytes = 0
        self._num_unsynced = 0
        self._synced_at_s = 0.0

    @property
    def is_used_up(self) -> bool:
        """For any thread."""
        return self._day == _today() and self._num_bytes >= self._bytes_per_day

    def take(self, num_bytes: int) -> bool:
        """Counts what is about to be written; False: it is too much for this day, which then is over."""
        if self._day != _today() or self._num_unsynced >= _UNSYNCED_BYTES:
            self.sync()
        if self._num_bytes + num_bytes > self._bytes_per_day:
            self._num_bytes = self._bytes_per_day
            return False
        self._num_bytes += num_bytes
        self._num_unsynced += num_bytes
        return True

    def sync_at_times(self) -> None:
        """sync(), unless that has just been done: it replaces a file."""
        if not 0 <= time.time() - self._synced_at_s < _UNSYNCED_S:
            self.sync()

    def sync(self) -> None:
        """Takes account of what others have written, and lets them know of this process."""
        self._synced_at_s, today = time.time(), _today()
        day, num_bytes = self._read()
        self._num_bytes = self._num_unsynced + (num_bytes if day == today else 0)
        self._day = today
        if self._num_unsynced:
            with suppress(OSError):
                self._write(_ENTRY.pack(today, self._num_bytes))
        self._num_unsynced = 0

    def _read(self) -> tuple[int, int]:
        with suppress(OSError, struct.error), self._directory().opened(_FILE, os.O_RDONLY) as file:
            day, num_bytes = _ENTRY.unpack(os.read(file, _ENTRY.size))
            return day, num_bytes
        return -1, 0

    def _write(self, entry: bytes) -> None:
        directory = self._directory()
        file, temporary = directory.create_temporary()
        try:
            os.write(file, entry)
            directory.replace(temporary, _FILE)
        except OSError:
            directory.remove(temporary)
            raise
        finally:
            os.close(file)


def _today() -> int:
    return int(time.time()) // _DAY_S
