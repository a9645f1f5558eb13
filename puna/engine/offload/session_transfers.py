"""Sessions on their way to and from files, in a thread of their own, while the engine goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from puna.engine.offload.lent_blocks import GroupBlock, LentBlocks
from puna.engine.offload.session_status import UnknownSession
from puna.kv import SequenceTable
from puna.kv.files.saved_sessions import SavedSession, SavedSessions
from puna.kv.files.session_manifest import SavedSessionError, SessionHeader

Done = Callable[[Exception | None], None]
"""Told how it ended: None: well."""


class SessionTransfer:
    """The common part of saving and loading. `error` says what went wrong in the file thread."""

    def __init__(self, saved: SavedSessions, model_id: str, name: str, done: Done) -> None:
        self.model_id = model_id
        self.name = name
        self.done = done
        self.error: Exception | None = None
        self.lent: LentBlocks | None = None
        """From then on in which there is something to copy."""
        self.progress = 0
        """Changes while the thread gets on."""
        self._saved = saved

    @property
    def is_stuck(self) -> bool:
        """Nobody waits for one that is: see Sessions.tend()."""
        return False

    @property
    def held(self) -> Iterable[GroupBlock]:
        return [] if self.lent is None else self.lent.held

    @property
    def held_bytes(self) -> int:
        return 0 if self.lent is None else self.lent.held_bytes

    def take_back(self) -> None:
        """By the engine's thread: what is not copied yet never will be."""
        if self.lent is not None:
            self.lent.take_back()

    def require_lent(self) -> None:
        """Raises SavedSessionError."""
        if self.lent is not None and self.lent.is_taken_back:
            raise SavedSessionError("given up: running requests needed the memory, or the model was unloaded")

    def _count(self) -> None:
        self.progress += 1

    def _run(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # whatever it is, somebody waits for an answer
            self.error = error


class SessionSave(SessionTransfer):
    """run() writes the files; what the session becomes meanwhile does not matter."""

    def __init__(
        self, saved: SavedSessions, header: SessionHeader, tokens: bytes, lent: LentBlocks, done: Done
    ) -> None:
        """tokens: int32. lent: the blocks at the header's places."""
        super().__init__(saved, header.kv.model_id, header.name, done)
        self.lent = lent
        self._header = header
        self._firsts = header.first_blocks
        self._tokens = tokens

    def run(self) -> None:
        """In the file thread."""
        self._run(lambda: self._saved.write(self._header, self._tokens, self._read, self._count))

    def _read(self, number: int, group: int) -> NDArray[np.uint8]:
        assert self.lent is not None
        content = self.lent.read(group, number - self._firsts[group])
        if content is None:
            self.require_lent()
        assert content is not None
        return content


class SessionLoad(SessionTransfer):
    """open() finds out what there is to read, run() fills blocks that nobody else knows yet."""

    session: SavedSession
    table: SequenceTable | None = None
    """The blocks into which it is read."""

    def open(self) -> None:
        """In the file thread."""
        self._run(self._open)

    def run(self) -> None:
        """In the file thread, once there are blocks: those at the header's places."""
        self._run(self._read)

    @property
    def header(self) -> SessionHeader:
        return self.session.header

    @property
    def tokens(self) -> NDArray[np.int32]:
        """[num_tokens]"""
        return np.frombuffer(self.session.tokens, dtype="<i4").astype(np.int32)

    def _open(self) -> None:
        try:
            self.session = self._saved.open(self.model_id, self.name)
        except FileNotFoundError:
            raise UnknownSession(f"session '{self.name}' was not saved") from None
        self._count()

    def _read(self) -> None:
        assert self.lent is not None
        firsts = self.header.first_blocks
        for number, group, stored in self.session.blocks():
            content = np.empty(self.header.kv.groups[group].block_bytes, dtype=np.uint8)
            self.session.read_block(stored, group, content)
            if not self.lent.write(group, number - firsts[group], content):
                self.require_lent()
            self._count()
