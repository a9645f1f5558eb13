"""Writing a blob: into a temporary file, hashed on the way, renamed when it is complete."""

from __future__ import annotations

import hashlib
import logging
import os
import tempfile
import threading
from pathlib import Path
from types import TracebackType
from typing import IO

from puna.registry.digest import Digest, blob_file_name
from puna.registry.errors import DigestMismatch
from puna.registry.store.files.reported import reported

log = logging.getLogger(__name__)

_CHUNK_BYTES = 1 << 20
_BUFFER_BYTES = 2 << 20
"""Written at once: as much as a large page has, which file systems then keep in one."""


class BlobWriter:
    """Use in a `with` block, or close() it: without `commit` (an error, a cancel) nothing is left behind.

    Not to be used by two threads at once, but each call may come from another thread.
    """

    def __init__(self, directory: Path, expected: Digest | None = None) -> None:
        """Creates the temporary file in `directory`. Raises StoreError."""
        self.num_bytes = 0
        self._directory = directory
        self._expected = expected
        self._hash = hashlib.sha256()
        with reported("cannot write to the store"):
            directory.mkdir(parents=True, exist_ok=True)
            descriptor, path = tempfile.mkstemp(prefix="puna-", suffix=".tmp", dir=directory)
        self.path = Path(path)
        """The temporary file. Its content is complete on disk after `verify`."""
        self._file: IO[bytes] = os.fdopen(descriptor, "wb", _BUFFER_BYTES)

    def __enter__(self) -> BlobWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Takes a while where much is to be deleted."""
        try:
            self._file.close()
        except OSError:
            # Closing flushes, which fails again on a full disk; whoever wrote has been told already.
            pass
        finally:
            self.path.unlink(missing_ok=True)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Appends. Raises StoreError."""
        with reported("cannot write to the store"):
            self._file.write(data)
        self._hash.update(data)
        self.num_bytes += len(data)

    @property
    def descriptor(self) -> int:
        """For another process to write the file in place of `write`; see take_file()."""
        return self._file.fileno()

    def take_file(self, cancelled: threading.Event) -> None:
        """Makes what another process has written the blob's content. Raises StoreError."""
        with reported("cannot read the store"), self.path.open("rb") as file:
            while (chunk := file.read(_CHUNK_BYTES)) and not cancelled.is_set():
                self._hash.update(chunk)
                self.num_bytes += len(chunk)

    def verify(self) -> Digest:
        """Brings everything to the disk and returns its digest. Raises StoreError, DigestMismatch."""
        with reported("cannot write to the store"):
            self._file.flush()
            os.fsync(self._file.fileno())  # a power cut must not leave an empty file under a blob's name
        digest = Digest("sha256:" + self._hash.hexdigest())
        if self._expected is not None and digest != self._expected:
            raise DigestMismatch(self._expected, digest)
        return digest

    def commit(self) -> Digest:
        """Gives the file its final name. Raises StoreError, or DigestMismatch if another was expected."""
        digest = self.verify()
        target = self._directory / blob_file_name(digest)
        with reported(f"cannot write {target}"):
            os.fchmod(self._file.fileno(), 0o644)
            if not _renewed(target, self.num_bytes):
                self.path.replace(target)
        return digest


def _renewed(blob: Path, num_bytes: int) -> bool:
    """Whether the blob is there already; others who share the store may remove it at any time. Raises
    OSError.
    """
    try:
        if not blob.is_file() or blob.stat().st_size != num_bytes:
            return False
        os.utime(blob)
    except FileNotFoundError:
        return False
    return True
