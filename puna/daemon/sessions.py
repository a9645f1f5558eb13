"""Sessions by name: those the worker has pinned, those in files, and the way between the two."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from puna.daemon.disk_thread import DiskThread
from puna.daemon.session_files import SessionFiles, short_digest
from puna.engine.offload.session_status import SessionStatus, UnknownSession, check_session_name
from puna.kv.checkpoint import CheckpointError, CheckpointHeader
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
    """Bytes of its KV in memory, or else of its file."""
    pinned: bool
    """Kept in memory."""
    saved_at: datetime | None
    """None: it is in no file."""


class SessionManager:
    """Finds models and files for what is asked about sessions.

    resident: keeps the model of a name loaded inside its context.
    All methods raise WorkerDied; those with a name the registry's errors, InvalidSessionName, SessionError,
    CheckpointError.
    """

    def __init__(
        self,
        files: SessionFiles,
        store: Store,
        worker: Caller,
        resident: Callable[[str], AbstractAsyncContextManager[Any]],
    ) -> None:
        self._files = files
        self._disk = DiskThread("sessions")
        self._store = store
        self._worker = worker
        self._resident = resident

    async def list(self) -> list[SessionEntry]:
        """By model and name."""
        pinned = {
            (status.model_id, status.name): status for status in await self._worker.call(ListSessions())
        }
        saved = await self._disk.run(self._files.list)
        models = await asyncio.to_thread(self._model_names)
        entries = [
            _entry(key[1], models.get(key[0], short_digest(key[0])), pinned.get(key), saved.get(key))
            for key in {**pinned, **saved}
        ]
        return sorted(entries, key=lambda entry: (entry.model, entry.name))

    async def save(self, model: str, name: str) -> SessionEntry:
        """Writes what is pinned to a file, in place of an older one."""
        check_session_name(name)
        model_id = await self._model_id(model)
        draft = await self._disk.run(lambda: self._files.begin(model_id, name))
        try:
            await self._worker.call(SaveSession(model_id, name), [draft.descriptor])
        except BaseException:
            await self._disk.run(draft.discard)
            raise
        await self._disk.run(draft.publish)
        return await self._find(model_id, model, name)

    async def load(self, model: str, name: str) -> SessionEntry:
        """Loads the model, if need be, and pins what the file has."""
        check_session_name(name)
        model_id = await self._model_id(model)
        try:
            descriptor = await self._disk.run(lambda: self._files.open(model_id, name))
        except FileNotFoundError:
            short = ModelName.parse(model).short
            raise UnknownSession(f"session '{name}' of {short} was not saved") from None
        try:
            async with self._resident(model):
                await self._worker.call(LoadSession(model_id, name), [descriptor])
                return await self._find(model_id, model, name)
        finally:
            os.close(descriptor)

    async def remove(self, model: str, name: str) -> None:
        """From memory and from disk. `model` may also be what list() says of a model that is gone."""
        check_session_name(name)
        try:
            model_id = await self._model_id(model)
        except ModelNotFound:
            model_id = await self._disk.run(lambda: self._orphan(model, name))
        was_in_memory = await self._worker.call(RemoveSession(model_id, name))
        was_saved = await self._disk.run(lambda: self._files.remove(model_id, name))
        if not (was_in_memory or was_saved):
            raise UnknownSession(f"session '{name}' of {model} not found")

    async def remove_leftovers(self) -> None:
        """Clears up what killed processes left."""
        with suppress(CheckpointError):
            await self._disk.run(self._files.remove_leftovers)

    async def _model_id(self, model: str) -> str:
        return (await asyncio.to_thread(self._store.find, ModelName.parse(model))).weights_id

    async def _find(self, model_id: str, model: str, name: str) -> SessionEntry:
        statuses = [
            s for s in await self._worker.call(ListSessions()) if (s.model_id, s.name) == (model_id, name)
        ]
        saved = await self._disk.run(lambda: self._files.find(model_id, name))
        return _entry(name, ModelName.parse(model).short, next(iter(statuses), None), saved)

    def _model_names(self) -> dict[str, str]:
        return {model.weights_id: model.name.short for model in self._store.list()}

    def _orphan(self, digest: str, name: str) -> str:
        """The weights, no longer in the store, that a session was saved with. Raises UnknownSession."""
        for model_id, saved_name in self._files.list():
            if saved_name == name and short_digest(model_id) == digest:
                return model_id
        raise UnknownSession(f"session '{name}' of {digest} not found")


def _entry(
    name: str, model: str, status: SessionStatus | None, saved: tuple[CheckpointHeader, int] | None
) -> SessionEntry:
    """From what the worker or the file says; of one of them, at least."""
    pinned = status is not None and status.pinned
    num_tokens, size = (status.num_tokens, status.kv_bytes) if status is not None else (0, 0)
    saved_at = None
    if saved is not None:
        header, file_bytes = saved
        saved_at = header.created_at
        if not pinned:
            num_tokens, size = header.num_tokens, file_bytes
    return SessionEntry(
        name=name,
        model=model,
        num_tokens=num_tokens,
        size=size,
        pinned=pinned,
        saved_at=saved_at,
    )
