"""The LoRA adapters beside a loaded model: names that share its weights may each have another."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from puna.backends.base import ModelSource
from puna.daemon.models.entry import FOREVER
from puna.daemon.opening import open_adapter
from puna.daemon.worker.supervisor import WorkerSupervisor
from puna.engine.memory.load_errors import ModelDoesNotFit
from puna.registry import StoredModel


@dataclass(eq=False, slots=True)
class AdapterEntry:
    """One adapter, from the first request that wants it until it is unloaded."""

    model: StoredModel
    """Of the name that loaded it."""
    keep_alive_s: float
    ready: asyncio.Task[int] = field(init=False)
    """Loads it; the bytes that it takes."""
    source: ModelSource | None = None
    num_holders: int = 0
    timer: asyncio.TimerHandle | None = None
    idle_since: datetime | None = None

    @property
    def expires_at(self) -> datetime:
        """When it goes if no other request comes, in local time."""
        now = datetime.now().astimezone()
        start = now if self.num_holders or self.idle_since is None else self.idle_since
        return start + min(FOREVER, timedelta(seconds=min(self.keep_alive_s, FOREVER.total_seconds())))

    def close(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        if self.source is not None:
            self.source.close()
            self.source = None


class ModelAdapters:
    """Each stays for its keep-alive time after its last request, and no longer than its model."""

    def __init__(self, model_id: str, worker: WorkerSupervisor, keep_alive_s: float) -> None:
        self._model_id = model_id
        self._worker = worker
        self._keep_alive_s = keep_alive_s
        self._entries: dict[str, AdapterEntry] = {}
        self._in_order = asyncio.Lock()  # an unload must not overtake the load that follows it
        self._unloads: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def hold(self, model: StoredModel, keep_alive_s: float | None) -> AsyncIterator[str]:
        """Keeps the adapter of a name loaded inside the context, where the model is held: its id, empty if
        the name has none. Raises ModelLoadError, WorkerDied, the registry's errors.
        """
        if model.adapter_path is None:
            yield ""
            return
        adapter_id = model.adapter_path.name
        entry = self._entries.get(adapter_id) or self._begin(adapter_id, model)
        self._attach(entry, keep_alive_s)
        try:
            await asyncio.shield(entry.ready)  # others may wait for it, too
            yield adapter_id
        finally:
            self._detach(adapter_id, entry)

    def loaded(self) -> list[AdapterEntry]:
        return [entry for entry in self._entries.values() if entry.ready.done()]

    async def unload(self, adapter_id: str) -> None:
        """Now or when its last request ends; nothing if it is not there."""
        if entry := self._entries.get(adapter_id):
            entry.keep_alive_s = 0.0
            self._expire(adapter_id, entry)
        await asyncio.gather(*self._unloads)

    async def unload_deleted(self) -> None:
        """Unloads idle ones whose file is deleted: they would keep its space on disk."""
        for adapter_id, entry in list(self._entries.items()):
            path = entry.model.adapter_path
            assert path is not None, "an entry has an adapter"
            if not await asyncio.to_thread(path.exists) and not entry.num_holders:
                self._expire(adapter_id, entry)

    async def close(self) -> None:
        """Its model is unloaded."""
        for entry in self._entries.values():
            entry.ready.cancel()
        await asyncio.gather(
            *(entry.ready for entry in self._entries.values()), *self._unloads, return_exceptions=True
        )
        for entry in self._entries.values():
            entry.close()
        self._entries.clear()

    def _begin(self, adapter_id: str, model: StoredModel) -> AdapterEntry:
        entry = self._entries[adapter_id] = AdapterEntry(model, self._keep_alive_s)
        entry.ready = asyncio.create_task(self._load(adapter_id, entry))
        return entry

    async def _load(self, adapter_id: str, entry: AdapterEntry) -> int:
        try:
            async with self._in_order:
                entry.source = await open_adapter(entry.model)
                return await self._send(adapter_id, entry.source)
        except BaseException:
            if self._entries.get(adapter_id) is entry:
                del self._entries[adapter_id]
            entry.close()
            raise

    async def _send(self, adapter_id: str, source: ModelSource) -> int:
        """To the worker. Idle ones make room, the longest idle first."""
        while True:
            try:
                return await self._worker.load_adapter(self._model_id, adapter_id, source)
            except ModelDoesNotFit:
                idle = [
                    (entry.idle_since, other)
                    for other, entry in self._entries.items()
                    if entry.ready.done() and not entry.num_holders and entry.idle_since
                ]
                if not idle:
                    raise
                _, oldest = min(idle)
                entry = self._entries.pop(oldest)
                try:
                    await self._worker.unload_adapter(self._model_id, oldest)
                finally:
                    entry.close()

    def _attach(self, entry: AdapterEntry, keep_alive_s: float | None) -> None:
        entry.num_holders += 1
        if keep_alive_s is not None:
            entry.keep_alive_s = keep_alive_s
        if entry.timer is not None:
            entry.timer.cancel()
            entry.timer = None

    def _detach(self, adapter_id: str, entry: AdapterEntry) -> None:
        entry.num_holders -= 1
        if entry.num_holders or self._entries.get(adapter_id) is not entry:
            return
        entry.idle_since = datetime.now().astimezone()
        if entry.keep_alive_s < FOREVER.total_seconds():
            loop = asyncio.get_running_loop()
            entry.timer = loop.call_later(max(entry.keep_alive_s, 0.0), self._expire, adapter_id, entry)

    def _expire(self, adapter_id: str, entry: AdapterEntry) -> None:
        if self._entries.get(adapter_id) is entry and not entry.num_holders:
            del self._entries[adapter_id]
            task = asyncio.create_task(self._unload(adapter_id, entry))
            self._unloads.add(task)
            task.add_done_callback(self._unloads.discard)

    async def _unload(self, adapter_id: str, entry: AdapterEntry) -> None:
        async with self._in_order:
            await self._worker.unload_adapter(self._model_id, adapter_id)
            entry.close()
