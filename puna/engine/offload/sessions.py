"""Sessions: the KV of finished requests, kept under a name for whoever continues them.

A session pins blocks that the prefix cache can find, so that a request which begins with the session's tokens
uses them like any other cached prefix.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from puna.config.sizes import binary_size
from puna.engine.offload.disk import DiskWatch, FileThreads
from puna.engine.offload.lent_blocks import LentBlocks
from puna.engine.offload.session_status import SessionError, SessionStatus, UnknownSession
from puna.engine.offload.session_transfers import Done, SessionLoad, SessionSave, SessionTransfer
from puna.engine.settings import EngineSettings
from puna.kv import SequenceTable
from puna.kv.blocks import blocks_for
from puna.kv.model_kv import ModelKv
from puna.kv.saved_sessions import SavedSessions
from puna.kv.session_manifest import SavedSessionError, SessionHeader

_MAX_UNPINNED = 1000
_NO_TOKENS: NDArray[np.int32] = np.empty(0, dtype=np.int32)


@dataclass(slots=True)
class _Session:
    """num_tokens: whose KV was pinned; the table is empty, and the tokens gone, if it no longer is."""

    num_tokens: int
    namespace: str
    to_disk: bool
    tokens: NDArray[np.int32]
    table: SequenceTable

    @property
    def is_pinned(self) -> bool:
        return self.table.num_blocks > 0


@dataclass(frozen=True, slots=True)
class _Model:
    kv: ModelKv
    kernels: str


class Sessions:
    """The sessions of all models, in memory and on their way to disk and back. For the engine's thread."""

    def __init__(self, settings: EngineSettings, clock: Callable[[], float]) -> None:
        """clock: seconds."""
        self._saved = _saved_sessions(settings)
        self._watch = DiskWatch(clock)
        self._threads: FileThreads | None = None
        self._models: dict[str, _Model] = {}
        # By model and name, least recently used first.
        self._sessions: dict[tuple[str, str], _Session] = {}
        self._transfers: list[SessionTransfer] = []

    def use_threads(self, threads: FileThreads) -> None:
        """From now on there is a disk."""
        self._threads = threads

    @property
    def num_bytes(self) -> int:
        """Of all that give_up_one() can release; shared blocks count with each who shares them."""
        return sum(
            table.num_blocks * model.kv.pool.block_bytes
            for model_id, model in self._models.items()
            for table in self.tables(model_id)
        )

    def add_model(self, model_id: str, kv: ModelKv, kernels: str) -> None:
        """kernels: what computes its KV."""
        self._models[model_id] = _Model(kv, kernels)

    def remove_model(self, model_id: str) -> None:
        """Forgets the model's sessions; what reads or writes their files gives up."""
        for key in [key for key in self._sessions if key[0] == model_id]:
            self._sessions.pop(key).table.release()
        for transfer in self._transfers:
            if transfer.model_id == model_id:
                transfer.take_back()
        del self._models[model_id]

    def keep(
        self, model_id: str, name: str, tokens: NDArray[np.int32], namespace: str, *, to_disk: bool = True
    ) -> None:
        """Pins as much of the tokens' KV as the prefix cache has; replaces an older session of that name.

        For tokens that were just computed: they are found whole, except for a last, partial block that a
        running sequence is writing to. Of no tokens, nothing is kept, and the older session stays.
        """
        if not len(tokens):
            return
        if old := self._sessions.pop((model_id, name), None):
            old.table.release()
        table, num_tokens = _pin(self._models[model_id].kv, tokens, namespace, to_disk)
        kept = tokens[:num_tokens].copy()
        self._sessions[model_id, name] = _Session(num_tokens, namespace, to_disk, kept, table)

    def give_up_one(self) -> bool:
        """Releases the blocks of the session that was not used for longest; they are then merely cached.

        Without such a session, one that is being written or read gives up its blocks. False: nor that.
        """
        oldest = next((session for session in self._sessions.values() if session.is_pinned), None)
        if oldest is not None:
            oldest.table.release()
            oldest.tokens = _NO_TOKENS
            self._forget_unpinned()
            return True
        lent = (t for t in self._transfers if t.lent is not None and not t.lent.is_taken_back)
        transfer = next(lent, None)
        if transfer is not None:
            transfer.take_back()
        return transfer is not None

    def remove(self, model_id: str, name: str) -> bool:
        """Forgets the session and unpins its blocks; False if there is none."""
        session = self._sessions.pop((model_id, name), None)
        if session is not None:
            session.table.release()
        return session is not None

    def statuses(self) -> list[SessionStatus]:
        """Least recently used first."""
        return [
            SessionStatus(
                model_id=model_id,
                name=name,
                num_tokens=session.num_tokens,
                kv_bytes=session.table.num_blocks * self._models[model_id].kv.pool.block_bytes,
            )
            for (model_id, name), session in self._sessions.items()
        ]

    def tables(self, model_id: str) -> list[SequenceTable]:
        """Of all that holds blocks of this model: sessions, and files that are being written or read."""
        pinned = [session.table for (of, _), session in self._sessions.items() if of == model_id]
        lent = [t.lent.table for t in self._transfers if t.model_id == model_id and t.lent is not None]
        return pinned + lent

    def save(self, model_id: str, name: str, done: Done) -> None:
        """Writes the session to files; then calls `done` with None, SessionError or SavedSessionError."""
        try:
            save = self._begin_save(model_id, name, done)
        except (SessionError, SavedSessionError) as error:
            done(error)
            return
        self._start(save, save.run, lambda: self._end(save))

    def load(self, model_id: str, name: str, done: Done) -> None:
        """Reads the session from files, in place of one in memory; older sessions make room for it. Then
        calls `done` with None, SessionError or SavedSessionError.
        """
        try:
            load = SessionLoad(self._disk(), model_id, name, done)
        except SavedSessionError as error:
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

    def _disk(self) -> SavedSessions:
        if self._saved is None or self._threads is None:
            raise SavedSessionError("sessions have no place on disk")
        return self._saved

    def _start(self, transfer: SessionTransfer, work: Callable[[], None], then: Callable[[], None]) -> None:
        assert self._threads is not None
        self._transfers.append(transfer)
        self._threads.start("sessions", work, then)

    def _begin_save(self, model_id: str, name: str, done: Done) -> SessionSave:
        """Raises SessionError, SavedSessionError."""
        session = self._sessions.get((model_id, name))
        if session is None:
            raise UnknownSession(f"session '{name}' is not in memory")
        if not session.is_pinned:
            raise SessionError(f"session '{name}' is no longer in memory: running requests needed its place")
        if not session.to_disk:
            raise SessionError(f"session '{name}' is not for the disk: its request had cache_to_disk false")
        self._sessions[model_id, name] = self._sessions.pop((model_id, name))  # as the latest used
        model = self._models[model_id]
        header = SessionHeader(
            kv=model.kv.identity,
            kernels=model.kernels,
            name=name,
            namespace=session.namespace,
            num_tokens=session.num_tokens,
            created_at=datetime.now(UTC),
        )
        saved = self._disk()
        model.kv.pool.retain(session.table.blocks)
        table = SequenceTable(model.kv.pool)
        table.adopt(session.table.blocks)
        tokens = session.tokens.astype("<i4").tobytes()
        return SessionSave(saved, header, tokens, _lend(model.kv, table, header), done)

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
        model = self._models.get(load.model_id)
        if model is None or self._threads is None:
            raise SessionError("the model is not loaded")
        load.header.require(model.kv.identity)
        table = SequenceTable(model.kv.pool)
        while not table.grow(load.header.num_tokens):
            if not self.give_up_one():
                needed = binary_size(blocks_for(load.header.num_tokens) * model.kv.pool.block_bytes)
                raise SessionError(f"session '{load.name}' needs {needed} of KV memory, which is not free")
        load.lent = _lend(model.kv, table, load.header)

    def _end_load(self, load: SessionLoad) -> None:
        """After it was read: it is then a session, in place of an older one."""
        if load.error is None and load in self._transfers:
            try:
                load.require_lent()
                assert load.lent is not None
                cache = self._models[load.model_id].kv.tree
                cursor = cache.start(load.header.namespace)
                cache.record_tail(cursor, load.lent.table, load.tokens)
                load.take_back()  # or its last block would be somebody's who writes to it
                self.keep(load.model_id, load.name, load.tokens, load.header.namespace)
            except Exception as error:
                load.error = error
        self._end(load)

    def _end(self, transfer: SessionTransfer) -> None:
        if transfer not in self._transfers:  # nobody waits for it any more
            return
        self._transfers.remove(transfer)
        transfer.take_back()
        transfer.done(transfer.error)

    def _forget_unpinned(self) -> None:
        """Keeps the list of those that are only remembered from growing for ever."""
        unpinned = [key for key, session in self._sessions.items() if not session.is_pinned]
        for key in unpinned[:-_MAX_UNPINNED]:
            del self._sessions[key]


def _saved_sessions(settings: EngineSettings) -> SavedSessions | None:
    key = settings.state_key
    if settings.sessions_dir is None:
        return None
    return SavedSessions(Path(settings.sessions_dir), lambda: _known(key))


def _known(key: bytes | None) -> bytes:
    if key is None:
        raise SavedSessionError("there is no key for what is saved: the log says why")
    return key


def _lend(kv: ModelKv, table: SequenceTable, header: SessionHeader) -> LentBlocks:
    """The blocks at the header's places."""
    return LentBlocks(kv.memory, table, [table.blocks[number] for number, _ in header.places])


def _pin(
    model: ModelKv, tokens: NDArray[np.int32], namespace: str, to_disk: bool
) -> tuple[SequenceTable, int]:
    """What the cache has of the tokens, retained, and how many they are."""
    table, cursor = SequenceTable(model.pool), model.tree.start(namespace, to_disk=to_disk)
    num_tokens = model.tree.follow(cursor, table, tokens, len(tokens))
    if partial := model.tree.find_partial(cursor, tokens, len(tokens)):
        block, num_more = partial
        model.pool.retain([block])
        if model.pool.is_shared(block):  # with a running sequence, perhaps, which must be free to write to it
            model.pool.release([block])
        else:
            table.adopt([block])
            num_tokens += num_more
    return table, num_tokens
