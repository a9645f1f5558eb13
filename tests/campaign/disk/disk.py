"""A disk that fills up and hangs when it is told to."""

from __future__ import annotations

import ctypes
import mmap
import os
import subprocess
import sys
import time
from pathlib import Path

_MNT_DETACH = 2
_START_S = 10.0


class Control(ctypes.Structure):
    """Shared with the process of the file system."""

    _fields_ = (
        ("num_writes", ctypes.c_int64),
        ("full_at", ctypes.c_int64),
        ("hangs_until_s", ctypes.c_double),
    )


class Disk:
    """Mounted at `mountpoint` until close(); what is written lies in `backing`."""

    def __init__(self, backing: Path, mountpoint: Path) -> None:
        """Raises OSError where nothing may be mounted."""
        for path in (backing, mountpoint):
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._mountpoint = mountpoint
        file = backing.with_name(f"{backing.name}.control")
        file.write_bytes(bytes(ctypes.sizeof(Control)))
        self._control = map_control(file)
        command = [sys.executable, "-m", "tests.campaign.disk.fuse", *map(str, (backing, mountpoint, file))]
        self._process = subprocess.Popen(command, stderr=subprocess.PIPE)
        deadline = time.monotonic() + _START_S
        while not os.path.ismount(mountpoint):
            if self._process.poll() is not None or time.monotonic() > deadline:
                _, errors = self._process.communicate()
                raise OSError(errors.decode().strip().split("\n")[-1])
            time.sleep(0.01)

    @property
    def num_writes(self) -> int:
        """Operations that need space, so far."""
        return self._control.num_writes

    def fill(self, num_more: int = 0) -> None:
        """After so many more such operations there is no space left."""
        self._control.full_at = self._control.num_writes + num_more + 1

    def free(self) -> None:
        self._control.full_at = 0

    def hang(self, seconds: float) -> None:
        """Nothing is answered so long."""
        self._control.hangs_until_s = time.monotonic() + seconds

    def close(self) -> None:
        self._control.hangs_until_s = 0.0
        ctypes.CDLL(None).umount2(os.fsencode(self._mountpoint), _MNT_DETACH)
        self._process.kill()
        self._process.communicate()


def map_control(path: Path) -> Control:
    with path.open("r+b") as file:
        return Control.from_buffer(mmap.mmap(file.fileno(), ctypes.sizeof(Control)))
