"""Sessions by name: those the worker has pinned, those in files, and the way between the two."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from puna.daemon.disk_thread import DiskThread
from puna.engine.offload.session_status import SessionStatus, UnknownSession
from puna.kv.files.saved_sessions import SavedSessions, short_digest
from puna.kv.files.session_manifest import SavedSessionError, SessionHeader, check_session_name
from puna.kv.files.state_key import read_or_make_key
from puna.registry import ModelName, ModelNotFound, Store
from puna.worker.calls import Caller
from puna.worker.engine.messages import ListSessions, LoadSession, RemoveSession, SaveSession


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionEntry:
    """One session, for lists."""

    name: str
    model: str
    """Short name of a model with its weights; the beginning of their digest if there is none any more."""
    num_tokens: int
    size: int
    """Bytes of its KV in memory, or else of its files."""
    pinned: bool
    """Kept in memory."""
    saved_at: datetime | None
    """None: it was not saved."""


class SessionManager:
    """Finds models and files for what is asked about sessions. The worker writes and reads those.

    All methods raise WorkerDied; those with a name the registry's errors, InvalidSessionName, SessionError,
    SavedSessionError.
    """

    def __init__(
        self,
        directory: Path,
        key: Path,
        store: Store,
        worker: Caller,
        resident: Callable[[str], AbstractAsyncContextManager[Any]],
    ) -> None:
        """directory: of saved sessions. key: file of the key with which they are authenticated.
        resident: keeps the model of a name loaded inside its context.
        """
        self._saved = SavedSessions(directory, lambda: read_state_key(key))
        self._disk = DiskThread("sessions")
        self._store = store
        self._worker = worker
        self._resident = resident

    async def list(self) -> list[SessionEntry]:
        """By model and name."""
        pinned = {
            (status.model_id, status.name): status for status in await self._worker.call(ListSessions())
        }
        saved = await self._disk.run(self._saved.list)
        models = await asyncio.to_thread(self._model_names)
        entries = [
            _entry(key[1], models.get(key[0], short_digest(key[0])), pinned.get(key), saved.get(key))
            for key in {**pinned, **saved}
        ]
        return sorted(entries, key=lambda entry: (entry.model, entry.name))

    async def save(self, model: str, name: str) -> SessionEntry:
        """Writes what is pinned to files, in place of an older session of that name."""
        check_session_name(name)
        model_id = await self._model_id(model)
        await self._disk.run(self._saved.prepare)
        await self._worker.call(SaveSession(model_id, name))
        return await self._find(model_id, model, name)

    async def load(self, model: str, name: str) -> SessionEntry:
        """Loads the model, if need be, and pins what was saved."""
        check_session_name(name)
        model_id = await self._model_id(model)
        if await self._disk.run(lambda: self._header(model_id, name)) is None:
            raise UnknownSession(f"session '{name}' of {ModelName.parse(model).short} was not saved")
        async with self._resident(model):
            await self._worker.call(LoadSession(model_id, name))
            return await self._find(model_id, model, name)

    async def remove(self, model: str, name: str) -> None:
        """From memory and from disk. `model` may also be what list() says of a model that is gone."""
        check_session_name(name)
        try:
            model_id = await self._model_id(model)
        except ModelNotFound:
            model_id = await self._disk.run(lambda: self._orphan(model, name))
        was_in_memory = await self._worker.call(RemoveSession(model_id, name))
        was_saved = await self._disk.run(lambda: self._saved.remove(model_id, name))
        if not (was_in_memory or was_saved):
            raise UnknownSession(f"session '{name}' of {model} not found")

    async def remove_leftovers(self) -> None:
        """Clears up what killed processes left."""
        with suppress(SavedSessionError):
            await self._disk.run(self._saved.remove_leftovers)

    async def _model_id(self, model: str) -> str:
        return (await asyncio.to_thread(self._store.find, ModelName.parse(model))).weights_id

    async def _find(self, model_id: str, model: str, name: str) -> SessionEntry:
        statuses = [
            s for s in await self._worker.call(ListSessions()) if (s.model_id, s.name) == (model_id, name)
        ]
        saved = await self._disk.run(lambda: self._header(model_id, name))
        return _entry(name, ModelName.parse(model).short, next(iter(statuses), None), saved)

    def _header(self, model_id: str, name: str) -> SessionHeader | None:
        """None: it was not saved. Raises SavedSessionError."""
        try:
            return self._saved.find(model_id, name)
        except FileNotFoundError:
            return None

    def _model_names(self) -> dict[str, str]:
        models = (*self._store.local.find_all(), *self._store.list())
        return {model.weights_id: model.name.short for model in models}

    def _orphan(self, digest: str, name: str) -> str:
        """The weights, no longer in the store, that a session was saved with. Raises UnknownSession."""
        for model_id, saved_name in self._saved.list():
            if saved_name == name and short_digest(model_id) == digest:
                return model_id
        raise UnknownSession(f"session '{name}' of {digest} not found")


def _entry(name: str, model: str, status: SessionStatus | None, saved: SessionHeader | None) -> SessionEntry:
    """From what the worker or the file says; of one of them, at least."""
    pinned = status is not None and status.pinned
    num_tokens, size = (status.num_tokens, status.kv_bytes) if status is not None else (0, 0)
    saved_at = None
    if saved is not None:
        saved_at = saved.created_at
        if not pinned:
            num_tokens, size = saved.num_tokens, saved.num_bytes
    return SessionEntry(
        name=name,
        model=model,
        num_tokens=num_tokens,
        size=size,
        pinned=pinned,
        saved_at=saved_at,
    )


def read_state_key(path: Path) -> bytes:
    """Raises SavedSessionError."""
    try:
        return read_or_make_key(path)
    except OSError as error:
        raise SavedSessionError(f"sessions cannot be used without a key: {error}") from error
