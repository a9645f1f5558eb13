"""Opening a blob for reading."""

from __future__ import annotations

from pathlib import Path

from puna.registry.digest import parse_digest
from puna.registry.errors import MissingBlob, StoreError
from puna.registry.store.files.regular_file import open_regular


def open_blob(path: Path) -> int:
    """A descriptor of the blob at `path`, the caller's to close. Raises MissingBlob, StoreError."""
    try:
        return open_regular(path)
    except FileNotFoundError:
        raise MissingBlob(parse_digest(path.name)) from None
    except OSError as error:
        raise StoreError(f"cannot read {path.name}: {error.strerror or error}") from error
