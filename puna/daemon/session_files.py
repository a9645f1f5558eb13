"""Saved sessions: a file each, named after the weights' digest and the session."""

from __future__ import annotations

import logging
import re
from contextlib import suppress
from pathlib import Path

from puna.engine.offload.session_status import check_session_name
from puna.kv.checkpoint import CheckpointError, CheckpointHeader, read_header
from puna.kv.checkpoint_files import CheckpointFiles, Draft
from puna.kv.state_key import read_or_make_key

log = logging.getLogger(__name__)

_SUFFIX = ".kv"
_SHORT_DIGEST = 12  # as in lists of models
_NOT_PLAIN = re.compile(r"[^0-9A-Za-z]")


class SessionFiles:
    """For any thread. Everything waits for a disk."""

    def __init__(self, directory: Path, key: Path) -> None:
        """key: file of the key with which sessions are authenticated."""
        self._files = CheckpointFiles(directory)
        self._key = key

    def begin(self, model_id: str, name: str) -> Draft:
        """A file to fill. Raises CheckpointError, InvalidSessionName."""
        self._read_key()  # before anybody has the worker fill it in vain
        return self._files.begin(_file_name(model_id, name))

    def open(self, model_id: str, name: str) -> int:
        """The caller's to close. Raises FileNotFoundError, CheckpointError, InvalidSessionName."""
        return self._files.open(_file_name(model_id, name))

    def find(self, model_id: str, name: str) -> tuple[CheckpointHeader, int] | None:
        """Header and bytes; None, with a warning where it cannot be read, if there is none. Raises
        CheckpointError, InvalidSessionName.
        """
        return self._read(_file_name(model_id, name), self._read_key())

    def list(self) -> dict[tuple[str, str], tuple[CheckpointHeader, int]]:
        """Header and bytes of each, by model and name. What cannot be read is left out, with a warning."""
        found = {}
        try:
            names = [name for name in self._files.names() if name.endswith(_SUFFIX)]
            key = self._read_key() if names else b""
        except CheckpointError as error:
            log.warning("%s", error)
            return {}
        for name in names:
            if saved := self._read(name, key):
                found[saved[0].kv.model_id, saved[0].name] = saved
        return found

    def remove(self, model_id: str, name: str) -> bool:
        """False if there is none. Raises CheckpointError, InvalidSessionName."""
        return self._files.remove(_file_name(model_id, name))

    def remove_leftovers(self) -> None:
        """Clears up what killed processes left."""
        with suppress(CheckpointError):
            self._files.remove_leftovers()

    def _read(self, name: str, key: bytes) -> tuple[CheckpointHeader, int] | None:
        try:
            header = read_header(self._files.open(name), key, str(self._files.directory / name))
            size = self._files.size(name)
            if _file_name(header.kv.model_id, header.name) != name:
                raise CheckpointError(
                    f"{self._files.directory / name} was saved under another name: {header.name}"
                )
        except FileNotFoundError:
            return None
        except CheckpointError as error:
            log.warning("%s", error)
            return None
        return header, size

    def _read_key(self) -> bytes:
        try:
            return read_or_make_key(self._key)
        except OSError as error:
            raise CheckpointError(f"sessions cannot be used without a key: {error}") from error


def short_digest(model_id: str) -> str:
    """As lists show it."""
    return model_id.removeprefix("sha256-")[:_SHORT_DIGEST]


def _file_name(model_id: str, name: str) -> str:
    check_session_name(name)
    return f"{_NOT_PLAIN.sub('_', short_digest(model_id))}-{name}{_SUFFIX}"
