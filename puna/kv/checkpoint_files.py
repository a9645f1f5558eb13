"""A directory of checkpoints by name, each whole or not there at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from puna.kv.checkpoint import CheckpointError
from puna.kv.state_directory import StateDirectory


class Draft:
    """A file without its name, until it is published."""

    def __init__(self, directory: StateDirectory, name: str) -> None:
        """Raises OSError."""
        self._directory = directory
        self._name = name
        self.descriptor, self._temporary = directory.create_temporary()
        """Empty, readable for the owner only; this object's to close."""

    def publish(self) -> None:
        """Of a file whose content is on disk: gives it its name, in place of an older one, also after a power
        cut. Raises CheckpointError.
        """
        try:
            with _reported(f"cannot write {self._directory.path / self._name}"):
                self._directory.replace(self._temporary, self._name)
                self._directory.sync()
        except CheckpointError:
            self.discard()
            raise
        self._close()

    def discard(self) -> None:
        """The file was not to be."""
        with suppress(OSError):
            self._directory.remove(self._temporary)
        self._close()

    def _close(self) -> None:
        os.close(self.descriptor)
        self._directory.close()


class CheckpointFiles:
    """For any thread."""

    def __init__(self, directory: Path) -> None:
        """It is made with the first file."""
        self.directory = directory

    def begin(self, name: str) -> Draft:
        """Raises CheckpointError."""
        with _reported(f"cannot write {self.directory / name}"):
            directory = StateDirectory.open(self.directory)
            try:
                return Draft(directory, name)
            except OSError:
                directory.close()
                raise

    def open(self, name: str) -> int:
        """A descriptor, the caller's to close. Raises FileNotFoundError, CheckpointError."""
        with _reported(f"cannot read {self.directory / name}"), self._opened() as directory:
            return directory.open_file(name)

    def size(self, name: str) -> int:
        """Bytes. Raises FileNotFoundError, CheckpointError."""
        with _reported(f"cannot read {self.directory / name}"), self._opened() as directory:
            return directory.status(name).st_size

    def names(self) -> list[str]:
        """Of all that is there. Raises CheckpointError."""
        try:
            with _reported(f"cannot read {self.directory}"), self._opened() as directory:
                return directory.names()
        except FileNotFoundError:
            return []

    def remove(self, name: str) -> bool:
        """False if it is not there. Raises CheckpointError."""
        try:
            with _reported(f"cannot remove {self.directory / name}"), self._opened() as directory:
                directory.remove(name)
        except FileNotFoundError:
            return False
        return True

    def remove_leftovers(self) -> None:
        """Removes what killed processes left. Raises CheckpointError."""
        with (
            suppress(FileNotFoundError),
            _reported(f"cannot read {self.directory}"),
            self._opened() as directory,
        ):
            directory.remove_leftovers()

    def _opened(self) -> StateDirectory:
        """As it is: whoever only reads makes nothing."""
        return StateDirectory.open(self.directory, make=False)


@contextmanager
def _reported(action: str) -> Iterator[None]:
    """Turns an OSError into a CheckpointError that says what failed and why, but for a missing file."""
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        raise CheckpointError(f"{action}: {error.strerror or error}") from error
