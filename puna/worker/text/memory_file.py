"""Memory that the daemon gives to a text worker to be written, and hands on once nobody can change it."""

from __future__ import annotations

import fcntl
import os

_SEALS = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL


def create(name: str) -> int:
    """An empty file in memory; its descriptor is the caller's. Raises OSError."""
    return os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)


def seal(descriptor: int) -> None:
    """From now on it is what it is. Raises OSError if somebody still has it mapped to write."""
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
