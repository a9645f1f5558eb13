"""The directory of saved sessions: a directory for each, of a manifest and block files.

A session is there once its manifest is, which gets its name when all blocks are on disk; blocks that only an
older session of that name had go after that. So whenever writing ends, there is a whole session or none.
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from puna.kv.files.block_files import BlockFiles, StoredBlock, UnsoundBlock
from puna.kv.files.session_manifest import (
    SavedSessionError,
    SessionHeader,
    check_session_name,
    read_header,
    read_manifest,
    write_manifest,
)
from puna.kv.files.state_directory import StateDirectory

if TYPE_CHECKING:  # the daemon, which lists sessions, does without NumPy
    import numpy as np
    from numpy.typing import NDArray

log = logging.getLogger(__name__)

_SUFFIX, _OLD_SUFFIX = ".session", ".kv"
_MANIFEST = "manifest"
_NOT_PLAIN = re.compile(r"[^0-9A-Za-z]")
_SHORT_DIGEST = 12  # as in lists of models
_UNSYNCED_BYTES = 16 << 20
_OLD = "was saved by an older version of puna, as one file: it cannot be loaded any more"

ReadBlock = Callable[[int, int], "NDArray[np.uint8]"]
"""The content [block_bytes] of a block: (number in the sequence, group)."""


def short_digest(model_id: str) -> str:
    """As lists show it."""
    return model_id.removeprefix("sha256-")[:_SHORT_DIGEST]


class SavedSession(NamedTuple):
    """A session whose manifest is authentic; its blocks have not been read yet."""

    header: SessionHeader
    tokens: bytes
    """int32 [num_tokens]"""
    files: BlockFiles

    def blocks(self) -> list[tuple[int, int, StoredBlock]]:
        """(number in the sequence, group, by what the file is found)"""
        chain = enumerate(self.files.chain(self.header.namespace, self.tokens))
        firsts = list(enumerate(self.header.first_blocks))
        return [
            (number, group, stored) for number, stored in chain for group, first in firsts if number >= first
        ]

    def read_block(self, stored: StoredBlock, group: int, target: NDArray[np.uint8]) -> None:
        """Fills target [block_bytes]. Raises SavedSessionError."""
        try:
            self.files.read(stored, target, group)
        except FileNotFoundError:
            raise SavedSessionError(f"session '{self.header.name}' is corrupt: a block is missing") from None
        except UnsoundBlock:
            text = f"session '{self.header.name}' is corrupt, or was changed: the MAC of a block is wrong"
            raise SavedSessionError(text) from None
        except OSError as error:
            raise _failed(f"cannot read session '{self.header.name}'", error) from error


class SavedSessions:
    """For any thread. Everything waits for a disk. Names that cannot be raise InvalidSessionName."""

    def __init__(self, path: Path, key: Callable[[], bytes]) -> None:
        """path: made with the first session. key: with which state is authenticated; raises
        SavedSessionError."""
        self.path = path
        self._key = key

    def prepare(self) -> None:
        """Makes the directory, if there is none. Raises SavedSessionError where sessions cannot be saved."""
        self._key()
        with _reported("cannot write sessions"):
            StateDirectory.open(self.path)

    def find(self, model_id: str, name: str) -> SessionHeader:
        """Raises FileNotFoundError, SavedSessionError."""
        key = self._key()
        with self._opened(model_id, name) as directory, _reported(f"cannot read session '{name}'"):
            return _header(directory, key, f"session '{name}'")

    def open(self, model_id: str, name: str) -> SavedSession:
        """Raises FileNotFoundError, SavedSessionError."""
        key = self._key()
        directory = self._opened(model_id, name)
        with (
            _reported(f"cannot read session '{name}'"),
            directory.opened(_MANIFEST, os.O_RDONLY) as manifest,
        ):
            header, tokens = read_manifest(manifest, key, f"session '{name}'")
        _check_name(header, f"session '{name}'", directory.path.name)
        return SavedSession(header, tokens, _files(directory, key, header))

    def write(
        self, header: SessionHeader, tokens: bytes, read_block: ReadBlock, on_progress: Callable[[], None]
    ) -> None:
        """Makes a session, in place of an older one of that name, and waits until all of it is on disk.

        tokens: int32 [num_tokens]. on_progress: told whenever something was done that may take its time.
        Raises SavedSessionError, and whatever read_block raises.
        """
        key = self._key()
        with (
            _reported(f"cannot write session '{header.name}'", FileNotFoundError),
            StateDirectory.open(self.path) as root,
            root.subdirectory(_directory_name(header.kv.model_id, header.name), make=True) as directory,
        ):
            _lock(directory, header.name)
            session = SavedSession(header, tokens, _files(directory, key, header))
            try:
                _write_blocks(session, read_block, on_progress)
                _write_manifest(directory, key, session)
                root.sync()
            finally:
                _clear_up(root, directory, key)

    def list(self) -> dict[tuple[str, str], SessionHeader]:
        """By model and name. What cannot be read is left out, with a warning."""
        found = {}
        try:
            with self._root() as root:
                names = [name for name in root.names() if name.endswith((_SUFFIX, _OLD_SUFFIX))]
                key = self._key() if names else b""
                for name in names:
                    if header := self._listed(root, name, key):
                        found[header.kv.model_id, header.name] = header
        except FileNotFoundError:
            pass
        except (OSError, SavedSessionError) as error:
            log.warning("cannot read %s: %s", self.path, error)
        return found

    def remove(self, model_id: str, name: str) -> bool:
        """False if there is none. Raises SavedSessionError."""
        found = False
        directory_name = _directory_name(model_id, name)
        with _reported(f"cannot remove session '{name}'"), suppress(FileNotFoundError), self._root() as root:
            with suppress(FileNotFoundError):
                root.remove(directory_name.removesuffix(_SUFFIX) + _OLD_SUFFIX)
                found = True
            with root.subdirectory(directory_name) as directory:
                _lock(directory, name)
                with suppress(FileNotFoundError):
                    directory.remove(_MANIFEST)  # first: it is never there without its blocks
                    found = True
                _clear_up(root, directory, b"")
        return found

    def remove_leftovers(self) -> None:
        """Clears up what killed processes left. Raises SavedSessionError."""
        key = self._key()
        with suppress(OSError), self._root() as root:
            for name in root.names():
                if name.endswith(_SUFFIX):
                    with suppress(OSError), root.subdirectory(name) as directory:
                        if directory.lock():
                            _clear_up(root, directory, key)

    def _listed(self, root: StateDirectory, name: str, key: bytes) -> SessionHeader | None:
        try:
            if name.endswith(_OLD_SUFFIX):
                raise SavedSessionError(f"{name} {_OLD}")
            with root.subdirectory(name) as directory:
                return _header(directory, key, name)
        except FileNotFoundError:  # it is being written, or was removed meanwhile
            pass
        except SavedSessionError as error:
            log.warning("%s", error)
        except OSError as error:
            log.warning("%s", _failed(f"cannot read {self.path / name}", error))
        return None

    def _opened(self, model_id: str, name: str) -> StateDirectory:
        directory_name = _directory_name(model_id, name)
        with _reported(f"cannot read session '{name}'"), self._root() as root:
            try:
                return root.subdirectory(directory_name)
            except FileNotFoundError:
                root.status(directory_name.removesuffix(_SUFFIX) + _OLD_SUFFIX)
        raise SavedSessionError(f"session '{name}' {_OLD}")

    def _root(self) -> StateDirectory:
        """The directory as it is: reading creates nothing."""
        return StateDirectory.open(self.path, make=False)


def _directory_name(model_id: str, name: str) -> str:
    check_session_name(name)
    return f"{_NOT_PLAIN.sub('_', short_digest(model_id))}-{name}{_SUFFIX}"


def _files(directory: StateDirectory, key: bytes, header: SessionHeader) -> BlockFiles:
    return BlockFiles(lambda _: directory, header.kv.key(key, header.kernels), header.kv.groups, _report)


def _report(text: str, error: Exception | None) -> None:
    log.warning("%s: %s", text, error)


def _lock(directory: StateDirectory, name: str) -> None:
    if not directory.lock():
        raise SavedSessionError(f"session '{name}' is just being written or removed")


def _header(directory: StateDirectory, key: bytes, label: str) -> SessionHeader:
    with directory.opened(_MANIFEST, os.O_RDONLY) as manifest:
        header = read_header(manifest, key, label)
    _check_name(header, label, directory.path.name)
    return header


def _check_name(header: SessionHeader, label: str, directory_name: str) -> None:
    if _directory_name(header.kv.model_id, header.name) != directory_name:
        model = short_digest(header.kv.model_id)
        raise SavedSessionError(f"{label} was saved under another name: {header.name}, of {model}")


def _write_blocks(session: SavedSession, read_block: ReadBlock, on_progress: Callable[[], None]) -> None:
    """A few at a time: how long to wait for a disk would else depend on the length of the session."""
    blocks, files, now_ns = session.blocks(), session.files, time.time_ns()
    at_once = max(_UNSYNCED_BYTES // max(map(files.file_bytes, range(len(files.groups)))), 1)
    for begin in range(0, len(blocks), at_once):
        few = blocks[begin : begin + at_once]
        for number, group, stored in few:
            content = read_block(number, group)
            if not files.is_sound(stored, group):  # it may be an older session's, too
                files.replace(stored, content, b"", now_ns, group)
            on_progress()
        for _, group, stored in few:
            files.sync(stored, group)
            on_progress()


def _write_manifest(directory: StateDirectory, key: bytes, session: SavedSession) -> None:
    """The blocks are on disk: so is the session, after that."""
    directory.sync()
    descriptor, temporary = directory.create_temporary()
    try:
        write_manifest(descriptor, key, session.header, session.tokens)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    directory.replace(temporary, _MANIFEST)
    directory.sync()


def _clear_up(root: StateDirectory, directory: StateDirectory, key: bytes) -> None:
    """Removes what the session in a locked directory does not need, and a directory that has none."""
    label = directory.path.name
    try:
        with directory.opened(_MANIFEST, os.O_RDONLY) as manifest:
            header, tokens = read_manifest(manifest, key, label)
        session = SavedSession(header, tokens, _files(directory, key, header))
        directory.clear({_MANIFEST, *(stored.file_name(group) for _, group, stored in session.blocks())})
    except FileNotFoundError:
        directory.clear()
        with suppress(OSError):
            root.remove_subdirectory(label)
    except (OSError, SavedSessionError):
        pass  # whose blocks they are is not known


@contextmanager
def _reported(action: str, *missing: type[OSError]) -> Iterator[None]:
    """Turns an OSError into a SavedSessionError that says what failed and why; that of a missing file only if
    it is told to."""
    try:
        yield
    except missing as error:
        raise _failed(action, error) from error
    except FileNotFoundError:
        raise
    except OSError as error:
        raise _failed(action, error) from error


def _failed(action: str, error: OSError) -> SavedSessionError:
    return SavedSessionError(f"{action}: {error.strerror or error}")
