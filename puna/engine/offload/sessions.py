"""Sessions: the KV of finished requests, kept under a name so that later requests continue them.

A session pins blocks that the prefix cache can find, so that a request which begins with the session's tokens
uses them like any other cached prefix.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from puna.config.sizes import binary_size
from puna.engine.offload.disk import DiskWatch, FileThreads
from puna.engine.offload.lent_blocks import LentBlocks, blocks_from, hold_blocks
from puna.engine.offload.model_offload import ModelOffload, Session
from puna.engine.offload.pinned_prefix import PinnedPrefix
from puna.engine.offload.session_status import (
    NEEDS_PREFIX_TREE,
    SessionError,
    SessionStatus,
    UnknownSession,
)
from puna.engine.offload.session_transfers import Done, SessionLoad, SessionSave, SessionTransfer
from puna.engine.settings import EngineSettings
from puna.kv import BLOCK_TOKENS
from puna.kv.files.saved_sessions import SavedSessions
from puna.kv.files.session_manifest import SavedSessionError, SessionHeader

_MAX_UNPINNED = 1000  # of each model


class Sessions:
    """The sessions of all models, in memory and on their way to disk and back. For the engine's thread."""

    def __init__(
        self, settings: EngineSettings, clock: Callable[[], float], models: list[ModelOffload]
    ) -> None:
        """clock: seconds. models: those awake, whenever they are."""
        self._saved = _saved_sessions(settings)
        self._policy = settings.cache_policy
        self._watch = DiskWatch(clock)
        self._threads: FileThreads | None = None
        self._models = models
        self._uses = itertools.count()
        self._transfers: list[SessionTransfer] = []

    def use_threads(self, threads: FileThreads) -> None:
        """From now on there is a disk."""
        self._threads = threads

    @property
    def num_bytes(self) -> int:
        """Of all that give_up_one() can release; shared blocks count with each who shares them."""
        pinned = sum(session.pin.held_bytes for _, session in self._pinned() if session.pin is not None)
        return pinned + sum(transfer.held_bytes for transfer in self._transfers)

    def forget_model(self, model: ModelOffload) -> None:
        """Forgets the model's sessions; what reads or writes their files gives up."""
        for name in list(model.sessions):
            self._forget(model, name)
        for transfer in self._transfers:
            if transfer in model.session_transfers:
                transfer.take_back()

    def keep(
        self,
        model: ModelOffload,
        name: str,
        tokens: NDArray[np.int32],
        namespace: str,
        *,
        to_disk: bool = True,
    ) -> None:
        """Pins as much of the tokens' KV as the prefix cache has; replaces an older session of that name.

        For tokens that were just computed: they are found whole, except for a last, partial block that a
        running sequence is writing to. Of no tokens, nothing is kept, and the older session stays.
        """
        if not len(tokens):
            return
        self._forget(model, name)
        pin = PinnedPrefix(model.kv, tokens, namespace, to_disk=to_disk)
        model.sessions[name] = Session(len(pin.tokens), to_disk, next(self._uses), pin)

    def give_up_one(self) -> bool:
        """Releases the blocks of the session that was not used for longest; they are then merely cached.

        Without such a session, one that is being written or read gives up its blocks. False: nor that.
        """
        model, session = min(self._pinned(), key=lambda pinned: pinned[1].used_last, default=(None, None))
        if model is not None and session is not None:
            _unpin(session)
            _forget_unpinned(model)
            return True
        transfer = next((transfer for transfer in self._transfers if transfer.held_bytes), None)
        if transfer is not None:
            transfer.take_back()
        return transfer is not None

    def remove(self, model_id: str, name: str) -> bool:
        """Forgets the session and unpins its blocks; False if there is none."""
        model = self._model(model_id)
        return model is not None and self._forget(model, name)

    def statuses(self) -> list[SessionStatus]:
        """Least recently used first."""
        sessions = [
            (session, model.model_id, name)
            for model in self._models
            for name, session in model.sessions.items()
        ]
        return [
            SessionStatus(
                model_id=model_id,
                name=name,
                num_tokens=session.num_tokens,
                kv_bytes=0 if session.pin is None else session.pin.held_bytes,
            )
            for session, model_id, name in sorted(sessions, key=lambda item: item[0].used_last)
        ]

    def save(self, model_id: str, name: str, done: Done) -> None:
        """Writes the session to files; then calls `done` with None, SessionError or SavedSessionError."""
        try:
            model, save = self._begin_save(model_id, name, done)
        except (SessionError, SavedSessionError) as error:
            done(error)
            return
        model.session_transfers.append(save)
        self._start(save, save.run, lambda: self._end(save))

    def load(self, model_id: str, name: str, done: Done) -> None:
        """Reads the session from files, in place of one in memory; older sessions make room for it. Then
        calls `done` with None, SessionError or SavedSessionError.
        """
        try:
            if self._policy != "prefix":
                raise SessionError(NEEDS_PREFIX_TREE)
            load = SessionLoad(self._disk(), model_id, name, done)
        except (SessionError, SavedSessionError) as error:
            done(error)
            return
        self._start(load, load.open, lambda: self._read(load))

    def tend(self) -> float | None:
        """Gives up on a disk that does not answer. Seconds until to look again; None: no need."""
        progress = sum(transfer.progress for transfer in self._transfers)
        wait_s = self._watch.wait_s(progress if self._transfers else None)
        if wait_s != 0:
            return wait_s
        for transfer in list(self._transfers):
            transfer.error = SavedSessionError("the disk of saved sessions does not answer")
            self._end(transfer)
        return None

    def stop(self) -> None:
        """Begins nothing more, and gives up what is under way."""
        self._threads = None
        for transfer in self._transfers:
            transfer.take_back()

    def _model(self, model_id: str) -> ModelOffload | None:
        return next((model for model in self._models if model.model_id == model_id), None)

    def _pinned(self) -> Iterator[tuple[ModelOffload, Session]]:
        for model in self._models:
            for session in model.sessions.values():
                if session.pin is not None:
                    yield model, session

    def _forget(self, model: ModelOffload, name: str) -> bool:
        session = model.sessions.pop(name, None)
        if session is not None:
            _unpin(session)
        return session is not None

    def _disk(self) -> SavedSessions:
        if self._saved is None or self._threads is None:
            raise SavedSessionError("sessions have no place on disk")
        return self._saved

    def _start(self, transfer: SessionTransfer, work: Callable[[], None], then: Callable[[], None]) -> None:
        assert self._threads is not None
        self._transfers.append(transfer)
        self._threads.start("sessions", work, then)

    def _begin_save(self, model_id: str, name: str, done: Done) -> tuple[ModelOffload, SessionSave]:
        """Raises SessionError, SavedSessionError."""
        model = self._model(model_id)
        session = None if model is None else model.sessions.get(name)
        if model is None or session is None:
            raise UnknownSession(f"session '{name}' is not in memory")
        pin = session.pin
        if pin is None:
            raise SessionError(f"session '{name}' is no longer in memory: running requests needed its place")
        if not session.to_disk:
            raise SessionError(f"session '{name}' is not for the disk: its request had cache_to_disk false")
        session.used_last = next(self._uses)
        header = SessionHeader(
            kv=model.identity,
            kernels=model.kernels,
            name=name,
            namespace=pin.namespace,
            num_tokens=session.num_tokens,
            created_at=datetime.now(UTC),
        )
        saved, tokens = self._disk(), pin.tokens.astype("<i4").tobytes()
        lent = hold_blocks(model.kv, pin.blocks_from(header.first_blocks))
        return model, SessionSave(saved, header, tokens, lent, done)

    def _read(self, load: SessionLoad) -> None:
        """After it was opened."""
        if load not in self._transfers:
            return
        try:
            if load.error is not None:
                raise load.error
            self._make_room(load)
        except Exception as error:
            load.error = error
            self._end(load)
        else:
            assert self._threads is not None
            self._threads.start("sessions", load.run, lambda: self._end_load(load))

    def _make_room(self, load: SessionLoad) -> None:
        """Raises SessionError, SavedSessionMismatch."""
        model = self._model(load.model_id)
        if model is None or self._threads is None:
            raise SessionError("the model is not loaded")
        header = load.header
        header.require(model.identity)
        table, resumed = model.kv.new_table(), header.num_tokens // BLOCK_TOKENS * BLOCK_TOKENS
        while not table.grow(header.num_tokens, resumed):
            if not self.give_up_one():
                needed = binary_size(table.missing_bytes(header.num_tokens))
                raise SessionError(f"session '{load.name}' needs {needed} of KV memory, which is not free")
        load.table = table
        load.lent = LentBlocks(model.kv, blocks_from(model.kv, table, header.first_blocks), table.release)
        model.session_transfers.append(load)

    def _end_load(self, load: SessionLoad) -> None:
        """After it was read: it is then a session, in place of an older one."""
        if load.error is None and load in self._transfers:
            try:
                self._adopt(load)
            except Exception as error:
                load.error = error
        self._end(load)

    def _adopt(self, load: SessionLoad) -> None:
        load.require_lent()
        model = self._model(load.model_id)
        assert model is not None
        assert load.table is not None
        tree, namespace = model.kv.tree, load.header.namespace
        load.table.stepped(load.header.num_tokens)
        record = tree.snapshot if model.kv.has_states else tree.record_tail
        record(tree.start(namespace), load.table, load.tokens)
        load.take_back()  # or its last block would be somebody's who writes to it
        self.keep(model, load.name, load.tokens, namespace)

    def _end(self, transfer: SessionTransfer) -> None:
        if transfer not in self._transfers:  # nobody waits for it any more
            return
        self._transfers.remove(transfer)
        transfer.take_back()
        for model in self._models:
            if transfer in model.session_transfers:
                model.session_transfers.remove(transfer)
        transfer.done(transfer.error)


def _unpin(session: Session) -> None:
    if session.pin is not None:
        session.pin.release()
        session.pin = None


def _forget_unpinned(model: ModelOffload) -> None:
    """Keeps the list of sessions that are only remembered from growing for ever."""
    names = [name for name, session in model.sessions.items() if session.pin is None]
    for name in sorted(names, key=lambda name: model.sessions[name].used_last)[:-_MAX_UNPINNED]:
        del model.sessions[name]


def _saved_sessions(settings: EngineSettings) -> SavedSessions | None:
    key = settings.state_key
    if settings.sessions_dir is None:
        return None
    return SavedSessions(Path(settings.sessions_dir), lambda: _known(key))


def _known(key: bytes | None) -> bytes:
    if key is None:
        raise SavedSessionError("there is no key for what is saved: the log says why")
    return key
