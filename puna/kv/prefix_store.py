"""The directory in which prefixes outlive their model: how much it may take, and who goes first."""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import stat
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from puna.kv.checkpoint import KvIdentity, remove_leftovers
from puna.kv.prefix_files import SUFFIX, VERSION, PrefixFiles
from puna.sizes import binary_size

log = logging.getLogger(__name__)

_MAX_DEFAULT_BYTES = 8 << 30
_DEFAULT_SHARE = 0.1  # of what is free
_SLACK = 0.05  # of the limit that goes beyond what must go, so that not every file costs a look at all


class _File(NamedTuple):
    modified_ns: int
    num_bytes: int
    path: str


class PrefixStore:
    """A directory for each kind of KV. Several processes may use it at the same time.

    There is no index. The files used longest ago go first; who uses some dates them so that a block is
    younger than what builds on it.
    """

    def __init__(self, root: Path, limit_bytes: int | None = None) -> None:
        """limit_bytes: None: 8 GiB or a tenth of what is free, whichever is less, once open() was called."""
        self.root = root
        self.limit_bytes = limit_bytes or 0
        self.num_bytes = 0
        """As far as this process knows."""
        self._has_limit = limit_bytes is not None
        self._lock = threading.Lock()
        self._reported: set[tuple[str, str]] = set()

    def open(self) -> None:
        """Looks at what there is, and clears up what killed processes left; takes a while."""
        with suppress(OSError):
            for directory in self._directories():
                remove_leftovers(Path(directory))
        if not self._has_limit:
            num_bytes = sum(file.num_bytes for file in self._files())
            free_bytes = _free_bytes(self.root) + num_bytes
            self.limit_bytes = min(_MAX_DEFAULT_BYTES, int(_DEFAULT_SHARE * free_bytes))
        if removed_bytes := self.keep_limit():
            limit, removed = binary_size(self.limit_bytes), binary_size(removed_bytes)
            log.info("removed %s of cached prefixes in %s, where they may take %s", removed, self.root, limit)

    def files(self, kv: KvIdentity, kernels: str) -> PrefixFiles:
        """kernels: what computed it. Other kernels' KV may differ in the last bits."""
        kind = msgspec.json.encode((VERSION, kernels, kv))
        name = hashlib.blake2b(kind, digest_size=20).hexdigest()
        return PrefixFiles(self.root / name, kind, kv.block_bytes, self.report)

    def added(self, num_bytes: int) -> bool:
        """A file was made; others may have to go for it. False: they cannot be removed."""
        self.num_bytes += num_bytes
        if self.num_bytes > self.limit_bytes:
            self.keep_limit()
        return self.num_bytes <= self.limit_bytes

    def count(self) -> None:
        """As keep_limit(): others may have changed what is there."""
        self.keep_limit()

    def keep_limit(self) -> int:
        """Looks at what all processes have there; if it is too much, removes the files used longest ago.
        Returns the bytes that are gone.
        """
        files = sorted(self._files())
        found_bytes = self.num_bytes = sum(file.num_bytes for file in files)
        if self.num_bytes <= self.limit_bytes:
            return 0
        for file in files:
            if self.num_bytes <= (1 - _SLACK) * self.limit_bytes:
                break
            try:
                Path(file.path).unlink()
            except FileNotFoundError:  # another process was faster
                pass
            except OSError as error:
                self.report("cannot remove cached prefixes", error)
                continue
            self.num_bytes -= file.num_bytes
        return found_bytes - self.num_bytes

    def report(self, text: str, error: Exception | None) -> None:
        """Logs it, once for each kind of error."""
        why = "" if error is None else (getattr(error, "strerror", None) or repr(error))
        with self._lock:
            is_new = (text, why) not in self._reported
            self._reported.add((text, why))
        if is_new:
            log.warning("%s in %s%s", text, self.root, f": {why}" if why else "")

    def _files(self) -> Iterator[_File]:
        for directory in self._directories():
            with suppress(OSError), os.scandir(directory) as entries:
                for entry in entries:
                    if entry.name.endswith(SUFFIX):
                        with suppress(OSError):  # gone meanwhile
                            status = entry.stat(follow_symlinks=False)
                            if not stat.S_ISDIR(status.st_mode):
                                yield _File(status.st_mtime_ns, status.st_size, entry.path)

    def _directories(self) -> list[str]:
        try:
            with os.scandir(self.root) as entries:
                return [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
        except OSError:  # nothing there yet
            return []


def _free_bytes(path: Path) -> int:
    """Of the file system on which `path` is, or will be."""
    existing = next((p for p in (path, *path.absolute().parents) if p.exists()), None)
    return 0 if existing is None else shutil.disk_usage(existing).free
