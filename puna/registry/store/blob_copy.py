"""Copying what lies outside of the store into it."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from puna.registry.errors import StoreError
from puna.registry.store.blob_reader import open_blob
from puna.registry.store.blob_writer import BlobWriter
from puna.registry.store.files.free_space import check_free_space
from puna.registry.store.files.reported import reported

_CHUNK_BYTES = 1 << 20


def copy_blob(path: Path, writer: BlobWriter, cancelled: threading.Event) -> None:
    """Raises MissingBlob, StoreError, DigestMismatch."""
    copy_file(open_blob(path), writer, cancelled)


def copy_file(descriptor: int, writer: BlobWriter, cancelled: threading.Event) -> None:
    """All of a file, which is closed. Raises StoreError, DigestMismatch."""
    with os.fdopen(descriptor, "rb") as file:
        check_free_space(writer.path.parent, os.fstat(file.fileno()).st_size)
        while chunk := _read(file.fileno()):
            if cancelled.is_set():
                raise StoreError("cancelled")
            writer.write(chunk)
    writer.verify()


def _read(descriptor: int) -> bytes:
    with reported("cannot read the store"):
        return os.read(descriptor, _CHUNK_BYTES)
