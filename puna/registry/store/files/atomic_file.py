"""Small files that are there as a whole or not at all, and directories that are there while something is in
them.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from puna.registry.store.files.reported import reported

_NUM_ATTEMPTS = 10


def write_atomically(path: Path, data: bytes, top: Path) -> None:
    """Writes through a temporary file in `top`: one beside `path` would itself look like a manifest. Raises
    StoreError.
    """
    temporary: Path | None = None
    try:
        with reported("cannot write the manifest"):
            top.mkdir(parents=True, exist_ok=True)
            descriptor, temporary_name = tempfile.mkstemp(prefix="puna-", suffix=".tmp", dir=top)
            temporary = Path(temporary_name)
            with os.fdopen(descriptor, "wb") as file:
                os.fchmod(file.fileno(), 0o644)
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            _place(temporary, path)
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
        remove_empty_directories(path.parent, top)


def _place(temporary: Path, path: Path) -> None:
    """Others who share the store may remove the directory for as long as it is empty. Raises OSError."""
    for num_left in reversed(range(_NUM_ATTEMPTS)):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary.replace(path)
            return
        except FileNotFoundError:
            if not num_left:
                raise


def remove_empty_directories(directory: Path, top: Path) -> None:
    """From `directory` up to `top`, which stays."""
    while directory != top:
        try:
            directory.rmdir()
        except FileNotFoundError:
            pass  # never made; the ones above it may have been
        except OSError:
            return  # not empty
        directory = directory.parent
