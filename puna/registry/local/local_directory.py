"""Models in several files, which stay where they are: a directory of safetensors, a split GGUF file."""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from puna.registry.errors import StoreError, UnsupportedModel
from puna.registry.local.directory_files import SUFFIX
from puna.registry.local.local_file import GGUF
from puna.registry.local.local_model import LocalModel, identity_of
from puna.registry.store.blob_holds import is_at
from puna.registry.store.files.file_lock import share_lock
from puna.registry.store.files.regular_file import open_regular

_MAX_FILES = 60
"""As many descriptors are handed over at once, and some more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadedModel(LocalModel):
    """`paths`: all its files, in order of their names. The engine reads the files of its weights by a header,
    a GGUF file that is made once of them and what lies beside them.
    """

    header: Path
    """Where it is, or is to be."""

    @property
    def directory(self) -> Path:
        return self.model_path.parent

    def relative(self, path: Path) -> str:
        return str(path.relative_to(self.directory))

    def open_files(self) -> dict[str, int]:
        """Descriptors by their names in the directory, in order, the caller's to close. Raises StoreError,
        also if a file is not any more what it was when it was found.
        """
        files: dict[str, int] = {}
        with ExitStack() as opened:
            for path in self.paths:
                try:
                    files[self.relative(path)] = descriptor = open_regular(path)
                except OSError as error:
                    raise StoreError(f"cannot read {path.name}: {error.strerror or error}") from error
                opened.callback(os.close, descriptor)
            self.check_same(files)
            opened.pop_all()
        return files

    def check_same(self, files: dict[str, int]) -> None:
        """Raises StoreError if open files have changed."""
        if identity_of([os.fstat(descriptor) for descriptor in files.values()]) != self.digest:
            raise StoreError(f"{self.model_path.name} has just been changed")

    def open_weights(self) -> tuple[int, ...]:
        """The header, then the files of weights, as the header counts them. Raises FileNotFoundError if
        there is no header yet, StoreError.
        """
        with ExitStack() as opened:
            descriptors = [self._open_header()]
            opened.callback(os.close, descriptors[0])
            for name, descriptor in self.open_files().items():
                if _has_weights(name):
                    descriptors.append(descriptor)
                    opened.callback(os.close, descriptor)
                else:
                    os.close(descriptor)
            opened.pop_all()
        return tuple(descriptors)

    def _open_header(self) -> int:
        """Nobody removes it for as long as it is open."""
        descriptor = os.open(self.header, os.O_RDONLY | os.O_CLOEXEC)
        try:
            share_lock(descriptor)
            if not is_at(self.header, descriptor):
                raise FileNotFoundError(self.header)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def open(self) -> int:
        raise UnsupportedModel(f"model '{self.name.short}' is not one GGUF file: create a model from it")

    def check_loadable(self) -> None:
        num_files = sum(_has_weights(path.name) for path in self.paths)
        if num_files > _MAX_FILES:
            raise UnsupportedModel(
                f"model '{self.name.short}' has its weights in {num_files} files: create a model from it"
            )


def _has_weights(name: str) -> bool:
    """Other programs write GGUF's ending in any case."""
    return name.endswith(SUFFIX) or name.lower().endswith(GGUF)


class LocalDirectory(HeadedModel):
    """Of safetensors; `model_path` is the directory."""

    @property
    def directory(self) -> Path:
        return self.model_path


class SplitModel(HeadedModel):
    """All parts of a GGUF file; `model_path` is the first one's."""
