"""What is cleared away when a daemon starts: what no model needs any more, and what killed processes left.

Whatever can still run cleans up after itself. Others who share the store may be at work: nothing young goes,
and nothing that somebody has locked.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import time
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from puna.registry.digest import Digest, parse_digest
from puna.registry.errors import InvalidDigest, StoreError
from puna.registry.local.local_models import LocalModels
from puna.registry.store.files.file_lock import try_lock
from puna.registry.store.files.regular_file import open_regular
from puna.registry.store.part_files import PARTIAL
from puna.registry.store.store import Store

log = logging.getLogger(__name__)

_MAX_AGE_S = 3600.0
MAX_DOWNLOAD_AGE_S = 7 * 24 * 3600.0
"""Of a download that was broken off: it may be gone on with tomorrow."""

_PART = re.compile(rf"(sha256-[0-9a-f]{{64}}{PARTIAL})(-\d+)?", re.ASCII)
# Ollama's temporary files are `sha256-<digits>` and `<blob>.tmp`.
_TEMPORARY = re.compile(r"puna-.*\.tmp|sha256-\d{1,20}|sha256-[0-9a-f]{64}\.tmp", re.ASCII)


def clear_up(store: Store, *, prunes: bool) -> None:
    """prunes: false keeps blobs that no model needs, downloads that were broken off, and what Ollama left."""
    _rename_blobs(store.blobs)
    _clear_headers(store.local)
    for pattern in ("manifests/puna-*.tmp", "origins/puna-*.tmp", "blobs/puna-*.tmp", "puna-pull-*"):
        _remove_old(store.root.glob(pattern))
    if not prunes:
        return
    _remove_old(path for path in store.blobs.glob("sha256-*") if _TEMPORARY.fullmatch(path.name))
    _remove_old_downloads(store.blobs)
    _remove_unused(store)
    _remove_empty_directories(store.root / "manifests")


def _clear_headers(local: LocalModels) -> None:
    with suppress(OSError):
        local.remove_unused_headers()
    if local.in_place is not None:
        _remove_old(local.in_place.rglob("puna-*.tmp"))


def _rename_blobs(blobs: Path) -> None:
    """Old versions of Ollama wrote `sha256:<hex>`."""
    for path in blobs.glob("sha256:*"):
        with suppress(OSError, InvalidDigest):
            parse_digest(path.name)
            path.replace(path.with_name(path.name.replace(":", "-")))


def _remove_old(paths: Iterable[Path]) -> None:
    for path in paths:
        with suppress(OSError):  # gone already, or not ours to remove: the next start tries again
            if _age_s(path, *path.rglob("*")) > _MAX_AGE_S:
                log.info("removing %s", path)
                shutil.rmtree(path) if path.is_dir() else path.unlink()


def _remove_old_downloads(blobs: Path) -> None:
    downloads: dict[str, list[Path]] = defaultdict(list)
    for path in blobs.glob(f"*{PARTIAL}*"):
        if match := _PART.fullmatch(path.name):
            downloads[match[1]].append(path)
    for name, files in downloads.items():
        with suppress(OSError):
            limit = MAX_DOWNLOAD_AGE_S if (blobs / name).exists() else _MAX_AGE_S
            if _age_s(*files) > limit:
                _remove_download(blobs / name, files)


def _remove_download(partial: Path, files: list[Path]) -> None:
    descriptor = open_regular(partial) if partial in files else None
    try:
        if descriptor is None or try_lock(descriptor):
            log.info("removing %s", partial)
            for path in sorted(files, reverse=True):  # the records first: alone they are nothing
                path.unlink()
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _remove_unused(store: Store) -> None:
    old: list[Digest] = []
    for path in store.blobs.glob("sha256-*"):
        with suppress(OSError, InvalidDigest):
            digest = parse_digest(path.name)
            if _age_s(path) > _MAX_AGE_S:
                old.append(digest)
    with suppress(StoreError):  # the log says it
        for digest in store.remove_unused_blobs(old):
            log.info("removed blob %s, which no model needs", digest)


def _remove_empty_directories(top: Path) -> None:
    for directory, _, _ in os.walk(top, topdown=False):
        if Path(directory) != top:
            with suppress(OSError):  # not empty, or somebody is making one
                Path(directory).rmdir()


def _age_s(*paths: Path) -> float:
    """Since the latest change of any of them; one in the future is as long ago, of a clock that was wrong."""
    return abs(time.time() - max(path.lstat().st_mtime for path in paths))
