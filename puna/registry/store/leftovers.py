"""Temporary files of processes that were killed: whatever can still run cleans up after itself."""

from __future__ import annotations

import logging
import shutil
import time
from contextlib import suppress
from pathlib import Path

log = logging.getLogger(__name__)

_MAX_AGE_S = 3600.0


def remove_leftovers(root: Path) -> None:
    """Removes those in the store at `root` that nobody has written to for an hour.

    Only puna's own: partial downloads of Ollama can be resumed by it.
    """
    for pattern in ("blobs/puna-*.tmp", "manifests/puna-*.tmp", "origins/puna-*.tmp", "puna-pull-*"):
        for path in root.glob(pattern):
            with suppress(OSError):  # gone already, or not ours to remove: the next start tries again
                if abs(time.time() - _last_written(path)) > _MAX_AGE_S:  # a clock may have been wrong
                    log.info("removing %s", path)
                    shutil.rmtree(path) if path.is_dir() else path.unlink()


def _last_written(path: Path) -> float:
    """Time of the latest change of the file, or of anything in the directory."""
    return max(each.lstat().st_mtime for each in (path, *path.rglob("*")))
