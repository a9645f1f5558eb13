"""The text side of a model, as the daemon keeps it."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from puna.worker.text.messages import TextSide

FileIdentity: TypeAlias = tuple[tuple[int, ...], ...]
_numbers = itertools.count(1)


def identity_of(descriptors: Sequence[int]) -> FileIdentity:
    """The same for files that are the same, and have not been changed."""
    return tuple(
        (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        for status in map(os.fstat, descriptors)
    )


@dataclass(eq=False, slots=True)
class TextModel:
    """A model whose prompts can be built, until it is closed."""

    side: TextSide
    vocabulary: int
    token_table: int
    """Descriptors of sealed memory."""
    files: FileIdentity
    """The file of which all of it was made."""
    number: int = field(default_factory=lambda: next(_numbers))
    is_closed: bool = False
    has_killed: bool = False
    """Its template ended a worker: what is asked of it from now on counts as long, and leaves others room."""

    @property
    def end_of_generation(self) -> Sequence[int]:
        """Tokens that end a reply."""
        return self.side.end_of_generation

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            os.close(self.vocabulary)
            os.close(self.token_table)

    def handed_over(self) -> TextModel:
        """Another one with the same memory, in place of this, which counts as closed."""
        assert not self.is_closed
        self.is_closed = True
        return TextModel(self.side, self.vocabulary, self.token_table, self.files, has_killed=self.has_killed)


class UnusedModels:
    """Those that nobody uses now: if they are wanted again, their vocabularies are there. The latest ones, as
    far as their memory is small.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._models: dict[FileIdentity, TextModel] = {}

    def add(self, model: TextModel) -> None:
        """Unless it is closed. Takes its memory over."""
        if model.is_closed:
            return
        if (other := self._models.pop(model.files, None)) is not None:
            other.close()
        self._models[model.files] = model.handed_over()
        while sum(map(_memory_bytes, self._models.values())) > self._max_bytes:
            self._models.pop(next(iter(self._models))).close()

    def take(self, files: FileIdentity) -> TextModel | None:
        """It is the caller's."""
        return self._models.pop(files, None)

    def close(self) -> None:
        """Closes all; models that are added later are closed at once."""
        self._max_bytes = 0
        for model in self._models.values():
            model.close()
        self._models.clear()


def _memory_bytes(model: TextModel) -> int:
    return os.fstat(model.vocabulary).st_size + os.fstat(model.token_table).st_size
