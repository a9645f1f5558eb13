"""What the daemon asks about sessions. Files are read and written in a thread of their own."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable

from puna.engine.offload.session_files import SessionLoad, SessionSave
from puna.engine.offload.session_status import SessionError
from puna.engine.offload.sessions import Sessions
from puna.kv.checkpoint import Checkpoint, CheckpointError
from puna.worker.calls import ProtocolError, close_all
from puna.worker.engine.messages import (
    ListSessions,
    LoadSession,
    RemoveSession,
    SaveSession,
    SessionMessage,
)
from puna.worker.file_threads import FileThreads

log = logging.getLogger(__name__)


class SessionService:
    """handle() and close() belong to the engine's thread, as does all that touches the engine's sessions.

    call_soon: has that thread call a function. answer, fail: tell the daemon how a call ended.
    """

    def __init__(
        self,
        sessions: Sessions,
        state_key: bytes | None,
        call_soon: Callable[[Callable[[], None]], None],
        answer: Callable[[int, object], None],
        fail: Callable[[int, Exception], None],
    ) -> None:
        """state_key: with which files are authenticated; None: there are none."""
        self._sessions = sessions
        self._key = state_key
        self._call_soon = call_soon
        self._answer = answer
        self._fail = fail
        # One file at a time: more would only share the disk.
        self._files = FileThreads(1, "sessions")

    def handle(self, call: int, message: SessionMessage, descriptors: list[int]) -> None:
        """Closes the descriptors, sooner or later."""
        match message, descriptors:
            case ListSessions(), []:
                self._answer(call, self._sessions.statuses())
            case RemoveSession(model_id, name), []:
                self._answer(call, self._sessions.remove(model_id, name))
            case SaveSession(), [descriptor]:
                self._begin_save(call, message, descriptor)
            case LoadSession(), [descriptor]:
                self._files.submit(lambda: self._open(call, message, descriptor))
            case _:
                close_all(descriptors)
                self._fail(call, ProtocolError(f"{len(descriptors)} descriptors"))

    def close(self) -> None:
        """To be called when the engine has closed: what is under way then gives up soon."""
        self._files.close()

    def _begin_save(self, call: int, message: SaveSession, descriptor: int) -> None:
        try:
            save = self._sessions.begin_save(message.model_id, message.name)
        except SessionError as error:
            os.close(descriptor)
            self._fail(call, error)
        else:
            self._files.submit(lambda: self._save(call, save, descriptor))

    def _save(self, call: int, save: SessionSave, descriptor: int) -> None:
        error = _run(lambda: save.run(descriptor, self._state_key()))
        os.close(descriptor)
        self._call_soon(lambda: self._end_save(call, save, error))

    def _end_save(self, call: int, save: SessionSave, error: Exception | None) -> None:
        self._sessions.end_save(save)
        self._finish(call, error)

    def _open(self, call: int, message: LoadSession, descriptor: int) -> None:
        try:
            checkpoint = Checkpoint(descriptor, self._state_key(), f"session '{message.name}'")
        except Exception as error:
            failure = _reportable(error)
            self._call_soon(lambda: self._fail(call, failure))
        else:
            self._call_soon(lambda: self._begin_load(call, message, checkpoint))

    def _state_key(self) -> bytes:
        if self._key is None:
            raise CheckpointError("there is no key for what is saved: the log says why")
        return self._key

    def _begin_load(self, call: int, message: LoadSession, checkpoint: Checkpoint) -> None:
        try:
            load = self._sessions.begin_load(message.model_id, message.name, checkpoint)
        except (SessionError, CheckpointError) as error:
            checkpoint.close()
            self._fail(call, error)
        else:
            self._files.submit(lambda: self._load(call, load))

    def _load(self, call: int, load: SessionLoad) -> None:
        with load.checkpoint:
            error = _run(load.run)
        self._call_soon(lambda: self._end_load(call, load, error))

    def _end_load(self, call: int, load: SessionLoad, error: Exception | None) -> None:
        try:
            self._sessions.end_load(load, succeeded=error is None)
        except CheckpointError as given_up:
            error = given_up
        self._finish(call, error)

    def _finish(self, call: int, error: Exception | None) -> None:
        if error is None:
            self._answer(call, None)
        else:
            self._fail(call, error)


def _run(work: Callable[[], None]) -> CheckpointError | None:
    """What went wrong: whatever it is, the daemon waits for an answer."""
    try:
        work()
    except Exception as error:
        return _reportable(error)
    return None


def _reportable(error: Exception) -> CheckpointError:
    if isinstance(error, CheckpointError):
        return error
    log.error("a session's file", exc_info=error)
    return CheckpointError(repr(error))
