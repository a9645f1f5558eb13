"""The directory in which prefixes outlive their model: how much it may take, and which files go first."""

from __future__ import annotations

import logging
import re
import stat
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from blake3 import blake3

from puna.config.sizes import binary_size
from puna.kv.files.block_files import SUFFIX, VERSION, BlockFiles
from puna.kv.files.identity import KvIdentity
from puna.kv.files.state_directory import StateDirectory, UnsafeState
from puna.kv.files.write_allowance import WriteAllowance

log = logging.getLogger(__name__)

_MAX_DEFAULT_BYTES = 8 << 30
_DEFAULT_SHARE = 0.1  # of what is free
_SLACK = 0.05  # of the limit that goes beyond what must go, so that not every file costs a look at all
_AGE_STEP_NS = 1000
_FIRST_VERSION_NAME = re.compile(r"[0-9a-f]{40}")
_NAME = re.compile(r"(\d+)-[0-9a-f]{32}-[0-9a-f]{32}")


class _File(NamedTuple):
    modified_ns: int
    num_bytes: int
    directory: str
    name: str


class PrefixStore:
    """A directory for each kind of KV. Several processes may use it at the same time.

    There is no index. The files used longest ago go first; who uses some dates them so that a block is
    younger than what builds on it.
    """

    def __init__(
        self, root: Path, key: bytes, limit_bytes: int | None = None, bytes_per_day: int = 2**63
    ) -> None:
        """key: who knows another one finds nothing here, and makes nothing that is believed.
        limit_bytes: None: 8 GiB or a tenth of what is free, whichever is less, once open() was called.
        bytes_per_day: may be written.
        """
        self.root = root
        self.limit_bytes = limit_bytes or 0
        self.num_bytes = 0
        """As far as this process knows."""
        self.allowance = WriteAllowance(self._root, bytes_per_day)
        self._key = key
        self._has_limit = limit_bytes is not None
        self._lock = threading.Lock()
        self._directory: StateDirectory | UnsafeState | None = None
        self._reported: set[tuple[str, str]] = set()

    def open(self) -> None:
        """Looks at what there is, clears up what killed processes and older versions left; takes a while."""
        try:
            root = self._root()
        except OSError as error:
            self.report("prefixes are not kept on disk", error)
            self.limit_bytes = 0
            return
        _remove_older_versions(root)
        for directory in self._directories():
            directory.remove_leftovers()
        if not self._has_limit:
            num_bytes = sum(file.num_bytes for file in self._files())
            with suppress(OSError):
                self.limit_bytes = min(
                    _MAX_DEFAULT_BYTES, int(_DEFAULT_SHARE * (root.free_bytes() + num_bytes))
                )
        if removed_bytes := self.keep_limit():
            limit, removed = binary_size(self.limit_bytes), binary_size(removed_bytes)
            log.info("removed %s of cached prefixes in %s, where they may take %s", removed, self.root, limit)

    def files(self, kv: KvIdentity, kernels: str) -> BlockFiles:
        """kernels: see KvIdentity.key()."""
        key = kv.key(self._key, kernels)
        name = f"{VERSION}-{_hashed(kv.model_id)}-{blake3(key).hexdigest()[:32]}"
        return BlockFiles(
            lambda make: self._root().subdirectory(name, make=make), key, kv.groups, self.report
        )

    def erase(self, model_id: str) -> None:
        """Removes the files of these weights, whatever the kind of their KV."""
        wanted = _hashed(model_id)
        for directory in self._directories():
            if wanted in directory.path.name:
                with suppress(OSError):
                    directory.clear()
                    self._root().remove_subdirectory(directory.path.name)
        self.keep_limit()

    def added(self, num_bytes: int) -> bool:
        """A file was made; others may have to go for it. False: they cannot be removed."""
        self.num_bytes += num_bytes
        if self.num_bytes > self.limit_bytes:
            self.keep_limit()
        return self.num_bytes <= self.limit_bytes

    def keep_limit(self) -> int:
        """Looks at what all processes have there; if it is too much, removes the files used longest ago.
        Returns the bytes that are gone.
        """
        files = sorted(self._files(), key=lambda file: file.modified_ns)
        self._redate(files, time.time_ns())
        found_bytes = self.num_bytes = sum(file.num_bytes for file in files)
        if self.num_bytes <= self.limit_bytes:
            return 0
        for file in files:
            if self.num_bytes <= (1 - _SLACK) * self.limit_bytes:
                break
            try:
                self._root().subdirectory(file.directory).remove(file.name)
            except FileNotFoundError:  # another process was faster
                pass
            except OSError as error:
                self.report("cannot remove cached prefixes", error)
                continue
            self.num_bytes -= file.num_bytes
        return found_bytes - self.num_bytes

    def report(self, text: str, error: Exception | None) -> None:
        """Logs it, once for each kind of error."""
        why = "" if error is None else (getattr(error, "strerror", None) or str(error) or repr(error))
        with self._lock:
            is_new = (text, why) not in self._reported
            self._reported.add((text, why))
        if is_new:
            log.warning("%s in %s%s", text, self.root, f": {why}" if why else "")

    def _root(self) -> StateDirectory:
        """Raises OSError; UnsafeState once and for all: nobody looks again whether others can write there."""
        if self._directory is None:
            try:
                self._directory = StateDirectory.open(self.root)
            except UnsafeState as error:
                self._directory = error
        if isinstance(self._directory, UnsafeState):
            raise self._directory
        return self._directory

    def _files(self) -> Iterator[_File]:
        for directory in self._directories():
            for name in _names(directory):
                if name.endswith(SUFFIX):
                    with suppress(OSError):  # gone meanwhile
                        status = directory.status(name)
                        if not stat.S_ISDIR(status.st_mode):
                            yield _File(status.st_mtime_ns, status.st_size, directory.path.name, name)

    def _directories(self) -> Iterator[StateDirectory]:
        with suppress(OSError):
            root = self._root()
            for name in _names(root):
                if _NAME.fullmatch(name):
                    with suppress(OSError):
                        yield root.subdirectory(name)

    def _redate(self, files: list[_File], now_ns: int) -> None:
        """Dates files anew that a wrong clock dated in the future: they would go last. Their order stays."""
        future = [file for file in files if file.modified_ns > now_ns]
        for rank, file in enumerate(reversed(future)):
            with suppress(OSError):
                directory = self._root().subdirectory(file.directory)
                directory.set_modified(file.name, now_ns - rank * _AGE_STEP_NS)


def _names(directory: StateDirectory) -> list[str]:
    try:
        return directory.names()
    except OSError:  # gone meanwhile
        return []


def _remove_older_versions(root: StateDirectory) -> None:
    for name in _names(root):
        match = _NAME.fullmatch(name)
        if _FIRST_VERSION_NAME.fullmatch(name) or (match and int(match[1]) < VERSION):
            with suppress(OSError):
                root.subdirectory(name).clear()
                root.remove_subdirectory(name)


def _hashed(model_id: str) -> str:
    return blake3(model_id.encode(errors="surrogatepass")).hexdigest()[:32]
