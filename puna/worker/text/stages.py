"""What a text worker is doing: known also after it has died of it, since the zygote shares a page with it."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum

from puna.chat.errors import PromptError, TemplateError
from puna.gguf.errors import GgufError


class Stage(IntEnum):
    READING = 0
    """A model's file."""
    TEMPLATE = 1
    """Compiling or rendering it."""
    TOKENIZING = 2
    """What a client has sent."""

    @classmethod
    def of(cls, number: int) -> Stage:
        """Whoever took over a worker may have written any number."""
        return cls(number) if number in set(cls) else cls.READING


class SharedStage:
    """The stage of one worker, in memory that it shares with the process that forks it."""

    def __init__(self) -> None:
        self._page = mmap.mmap(-1, 1)

    @property
    def current(self) -> Stage:
        return Stage.of(self._page[0])

    def begin(self) -> None:
        """Another message."""
        self._page[0] = Stage.READING

    @contextmanager
    def during(self, stage: Stage) -> Iterator[None]:
        """It stays the stage where memory has run out, or the process has ended."""
        before = self._page[0]
        self._page[0] = stage
        try:
            yield
        except MemoryError:
            raise
        except BaseException:
            self._page[0] = before
            raise
        self._page[0] = before

    def close(self) -> None:
        self._page.close()


_WORK: dict[Stage, tuple[type[Exception], str]] = {
    Stage.READING: (GgufError, "reading the model's file"),
    Stage.TEMPLATE: (TemplateError, "the chat template"),
    Stage.TOKENIZING: (PromptError, "turning the prompt into tokens"),
}


def work_at(stage: Stage) -> str:
    """In words."""
    return _WORK[stage][1]


def limit_error(stage: Stage, excess: str) -> Exception:
    """Of the class that says whose fault it is: the file's, the template's or the client's."""
    kind, work = _WORK[stage]
    return kind(f"{work} {excess}")
