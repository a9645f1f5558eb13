"""Which models are resident: load on demand, keep-alive, eviction, sleep, unload.

A model is waiting for room, loading, resident, leaving or asleep; requests hold it from their arrival to
their end. Nothing here knows what loading means: that is passed in.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Generic, Protocol, TypeVar

from puna.daemon.busy import ServerBusy
from puna.daemon.models.entry import FOREVER, Entry
from puna.daemon.models.sleepers import Sleepers

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)


class Models(Protocol[T_contra]):
    """The operations on a loaded model."""

    async def sleep(self, model: T_contra) -> bool:
        """Has it give back its memory. Must not raise; False: it cannot be woken, and is to be unloaded."""

    async def wake(self, model: T_contra) -> None:
        """Undoes sleep(). Whatever it raises, the model is then unloaded."""

    async def unload(self, model: T_contra) -> None:
        """Releases it, awake or asleep. Must not raise."""

    def set_held(self, model: T_contra, *, is_held: bool) -> None:
        """Somebody uses a model, or nobody any more. One that is loaded or woken counts as used. Must not
        raise.
        """


class Residency(Generic[T]):
    """The table of models that are loaded or on their way; single-threaded, one event loop.

    max_loaded: 0 for no limit; an idle model makes room for a new one, the least recently used first.
    max_waiting: requests that may wait for a load to begin, as Ollama counts: one more is being seen to, and
        who wants a model that is being loaded already waits for it in any number.
    """

    def __init__(
        self,
        models: Models[T],
        *,
        keep_alive_s: float,
        max_loaded: int = 0,
        max_waiting: int = 512,
    ) -> None:
        self._models = models
        self._keep_alive_s = keep_alive_s
        self._max_loaded = max_loaded
        self._max_waiting = max_waiting
        self._num_waiting = 0
        self._entries: dict[str, Entry[T]] = {}
        self._sleepers = Sleepers(models.unload)
        self._admission = asyncio.Lock()  # asyncio's locks are fair: first come, first served
        self._room = asyncio.Event()
        self._departures: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def hold(
        self, key: str, load: Callable[[], Awaitable[T]], keep_alive_s: float | None = None
    ) -> AsyncIterator[T]:
        """Keeps model `key` resident inside the context; `load` runs if it is neither there nor asleep.

        keep_alive_s replaces the model's stored time if given; it starts when the last holder leaves.
        Raises ServerBusy, and whatever waking or `load` raises, to everyone who waits for that load.
        """
        entry = self._entries.get(key)
        if entry is None or entry.leaving or not entry.admitted:
            if self._num_waiting > self._max_waiting:
                raise ServerBusy
            self._num_waiting += 1
            try:
                entry = await self._wait_until_loaded(key, load, keep_alive_s)
            finally:
                self._num_waiting -= 1
        elif not entry.loaded:
            entry = await self._wait_until_loaded(key, load, keep_alive_s)
        else:
            self._attach(entry, keep_alive_s)
        try:
            yield entry.ready.result()
        finally:
            self._detach(entry)

    def has_room(self, key: str) -> bool:
        """Whether hold() would wait for nothing but loading. Who holds a model already must not wait for room
        for a second one: others may be waiting for that of the first.
        """
        entry = self._entries.get(key)
        if entry is not None:
            return entry.admitted and not entry.leaving
        return not self._max_loaded or len(self._entries) < self._max_loaded

    async def unload(self, key: str) -> None:
        """Unloads the model when it is idle, at once if it is that or asleep; nothing if it is not there. A
        load that nobody waits for is called off.
        """
        entry = self._entries.get(key)
        if entry is None:
            await self._sleepers.unload(key)
            return
        entry.keep_alive_s = 0.0
        if entry.num_holders == 0:
            entry.for_good = True
            if not entry.leaving:
                self._send_away(entry)
            await entry.gone.wait()

    def lose(self, key: str) -> None:
        """The model takes no more requests, and is unloaded when its running ones are done."""
        entry = self._entries.get(key)
        if entry is not None:
            entry.for_good = True
            self._retire(entry)

    def get(self, key: str) -> T | None:
        """A model that is there, awake or asleep."""
        entry = self._entries.get(key)
        return entry.ready.result() if entry is not None and entry.loaded else self._sleepers.get(key)

    def asleep(self) -> list[T]:
        """The longest asleep first."""
        return self._sleepers.all()

    def loaded(self) -> list[Entry[T]]:
        """The models that are there, last to expire first."""
        entries = [entry for entry in self._entries.values() if entry.loaded]
        return sorted(entries, key=lambda entry: entry.expires_at, reverse=True)

    async def close(self) -> None:
        """Stops timers and pending loads; loaded models end with the worker."""
        entries = list(self._entries.values())
        for entry in entries:
            entry.leaving = True
            entry.stop_timer()
            entry.ready.cancel()
        await asyncio.gather(*(entry.ready for entry in entries), *self._departures, return_exceptions=True)
        await self._sleepers.close()

    def _idle(self) -> list[Entry[T]]:
        return [entry for entry in self._entries.values() if entry.loaded and not entry.num_holders]

    async def _wait_until_loaded(
        self, key: str, load: Callable[[], Awaitable[T]], keep_alive_s: float | None
    ) -> Entry[T]:
        while (entry := self._entries.get(key)) is not None and entry.leaving:
            await entry.gone.wait()
        if entry is None:
            entry = self._create(key, load)
        self._attach(entry, keep_alive_s)
        try:
            # Shielded: others may wait for the same load when this request is cancelled.
            await asyncio.shield(entry.ready)
        except BaseException:
            self._detach(entry)
            raise
        return entry

    def _create(self, key: str, load: Callable[[], Awaitable[T]]) -> Entry[T]:
        entry: Entry[T] = Entry(key, self._keep_alive_s)
        self._entries[key] = entry
        entry.ready = asyncio.create_task(self._load(entry, load), name=f"load {key}")
        entry.ready.add_done_callback(lambda _: self._after_load(entry))
        return entry

    async def _load(self, entry: Entry[T], load: Callable[[], Awaitable[T]]) -> T:
        sleeper = await self._sleepers.take(entry.key)  # first: whoever makes room falls asleep, too
        try:
            await self._admit(entry)
        except BaseException:
            if sleeper is not None:
                self._sleepers.add(entry.key, sleeper)
                if entry.keep_alive_s <= 0:  # unload() was called meanwhile, or would be at the end
                    await self._sleepers.unload(entry.key)
            raise
        value = await (load() if sleeper is None else self._wake(sleeper))
        entry.loaded = True
        if entry.num_holders == 0:
            self._become_idle(entry, value)
        return value

    async def _admit(self, entry: Entry[T]) -> None:
        async with self._admission:
            while self._max_loaded and self._num_admitted() >= self._max_loaded:
                self._evict_one()
                self._room.clear()
                await self._room.wait()
            entry.admitted = True

    async def _wake(self, model: T) -> T:
        try:
            await self._models.wake(model)
        except BaseException:
            await self._models.unload(model)
            raise
        return model

    def _after_load(self, entry: Entry[T]) -> None:
        # Not in _load: a task that is cancelled before its first step runs none of it.
        if not entry.loaded and (entry.ready.cancelled() or entry.ready.exception() is not None):
            self._remove(entry)

    def _attach(self, entry: Entry[T], keep_alive_s: float | None) -> None:
        entry.num_holders += 1
        if entry.num_holders == 1 and entry.loaded:
            self._models.set_held(entry.ready.result(), is_held=True)
        entry.stop_timer()
        entry.last_used_s = asyncio.get_running_loop().time()
        if keep_alive_s is not None:
            entry.keep_alive_s = keep_alive_s

    def _detach(self, entry: Entry[T]) -> None:
        entry.num_holders -= 1
        if entry.num_holders:
            return
        entry.last_used_s = asyncio.get_running_loop().time()
        if entry.loaded:
            self._become_idle(entry, entry.ready.result())
        elif not entry.admitted:
            # Nobody wants it any more, and it has taken nothing yet: others need not make room for it.
            self._send_away(entry)

    def _become_idle(self, entry: Entry[T], value: T) -> None:
        self._models.set_held(value, is_held=False)
        entry.idle_since_s = time.time()
        if entry.keep_alive_s <= 0:
            entry.for_good = True
        if entry.leaving or entry.for_good:
            self._depart(entry)
        elif entry.keep_alive_s < FOREVER.total_seconds():
            loop = asyncio.get_running_loop()
            entry.timer = loop.call_later(entry.keep_alive_s, self._depart, entry)

    def _retire(self, entry: Entry[T]) -> None:
        """The model takes no more requests and goes when those that run are done."""
        if not entry.leaving:
            entry.leaving = True
            if entry.num_holders == 0 and entry.loaded:
                self._depart(entry)

    def _send_away(self, entry: Entry[T]) -> None:
        """One that nobody holds, loaded or on its way."""
        if entry.loaded:
            self._depart(entry)
        else:
            entry.leaving = True
            entry.ready.cancel()

    def _depart(self, entry: Entry[T]) -> None:
        assert entry.num_holders == 0, f"{entry.key} goes while in use"
        entry.leaving = True
        entry.stop_timer()
        task = asyncio.create_task(self._leave(entry), name=f"leave {entry.key}")
        self._departures.add(task)
        task.add_done_callback(self._departures.discard)

    async def _leave(self, entry: Entry[T]) -> None:
        value = entry.ready.result()
        try:
            is_asleep = not entry.for_good and await self._models.sleep(value)
            if is_asleep and not entry.for_good:  # nobody has asked for the unload meanwhile
                self._sleepers.add(entry.key, value)
            else:
                await self._models.unload(value)
        finally:
            self._remove(entry)

    def _remove(self, entry: Entry[T]) -> None:
        entry.loaded = False
        del self._entries[entry.key]
        entry.gone.set()
        self._room.set()

    def _num_admitted(self) -> int:
        return sum(entry.admitted for entry in self._entries.values())

    def _evict_one(self) -> None:
        """Sends one model away, an idle one if there is any; nothing if one is already leaving."""
        candidates = [entry for entry in self._entries.values() if entry.admitted]
        if not any(entry.leaving for entry in candidates):
            self._retire(min(candidates, key=lambda entry: (entry.num_holders > 0, entry.last_used_s)))
