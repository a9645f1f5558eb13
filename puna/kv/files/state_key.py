"""The key that authenticates state on disk: files that were made without it are not believed."""

from __future__ import annotations

import logging
import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path

from blake3 import blake3

from puna.kv.files.state_directory import UnsafeState

log = logging.getLogger(__name__)

KEY_BYTES = 32
_FOR_OTHERS = 0o077


def find_key(path: Path) -> bytes | None:
    """As read_or_make_key(); None, and a line in the log, if that cannot be."""
    try:
        return read_or_make_key(path)
    except OSError as error:
        log.warning("no state is kept on disk: %s", error)
        return None


def read_or_make_key(path: Path) -> bytes:
    """The KEY_BYTES in the file, which is made if there is none. Raises UnsafeState, OSError."""
    try:
        return _read(path)
    except FileNotFoundError:
        _make(path)
        return _read(path)


def derive_key(key: bytes, purpose: bytes) -> bytes:
    """A key for one purpose, which tells nothing of the others'."""
    return blake3(purpose, key=key).digest()


def _read(path: Path) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size != KEY_BYTES:
            raise UnsafeState(f"{path} is no key: remove it, and a new one is made")
        if status.st_uid != os.geteuid() or status.st_mode & _FOR_OTHERS:
            raise UnsafeState(f"others may know the key in {path}: remove it, and a new one is made")
        return os.read(descriptor, KEY_BYTES)
    finally:
        os.close(descriptor)


def _make(path: Path) -> None:
    """Writes the key whole or not at all, and never over one that another process made first."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}-{secrets.token_hex(8)}.tmp")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(temporary, flags, 0o600)
    try:
        try:
            os.write(descriptor, secrets.token_bytes(KEY_BYTES))
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        with suppress(FileExistsError):
            os.link(temporary, path)
    finally:
        temporary.unlink()
