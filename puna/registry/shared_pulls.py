"""One pull of each name at a time: whoever asks for the same meanwhile watches it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Hashable
from contextlib import aclosing

from puna.registry.progress import Progress

MAX_AT_ONCE = 4


class SharedPulls:
    """For one event loop. A pull goes on for as long as anybody watches it; the last one to go cancels it."""

    def __init__(self) -> None:
        self._running: dict[Hashable, _Pull] = {}
        self._slots = asyncio.Semaphore(MAX_AT_ONCE)

    async def watch(
        self, key: Hashable, start: Callable[[], AsyncGenerator[Progress, None]]
    ) -> AsyncGenerator[Progress, None]:
        """The statuses from the first on, of the pull under `key`, or of a new one that `start` makes.

        One who watches slowly misses figures, but no status. Raises what the pull raises. Closing the
        generator of the only one who watches returns when the pull has cleaned up.
        """
        pull = self._running.get(key)
        if pull is None:
            pull = self._running[key] = _Pull(start, self._slots)
            pull.task.add_done_callback(lambda _: self._forget(key, pull))
        pull.num_watching += 1
        try:
            async for progress in pull.statuses():
                yield progress
        finally:
            pull.num_watching -= 1
            if not pull.num_watching:
                self._forget(key, pull)  # who asks now begins anew
                pull.task.cancel()
                await asyncio.wait({pull.task})

    def _forget(self, key: Hashable, pull: _Pull) -> None:
        if self._running.get(key) is pull:
            del self._running[key]


class _Pull:
    """A task, and what it has told so far: the latest figures of each status."""

    def __init__(self, start: Callable[[], AsyncGenerator[Progress, None]], slots: asyncio.Semaphore) -> None:
        self.num_watching = 0
        self._told: list[Progress] = []
        self._error: Exception | None = None
        self._is_over = False
        self._changed = asyncio.Event()
        self.task = asyncio.ensure_future(self._run(start, slots))

    async def _run(
        self, start: Callable[[], AsyncGenerator[Progress, None]], slots: asyncio.Semaphore
    ) -> None:
        try:
            if slots.locked():
                self._tell(Progress("waiting for other pulls"))
            async with slots, aclosing(start()) as statuses:
                async for progress in statuses:
                    self._tell(progress)
        except Exception as error:  # all who watch are told
            self._error = error
        finally:
            self._is_over = True
            self._wake()

    def _tell(self, progress: Progress) -> None:
        if self._told and self._told[-1].status == progress.status:
            self._told[-1] = progress
        else:
            self._told.append(progress)
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def statuses(self) -> AsyncGenerator[Progress, None]:
        position, last = 0, None
        while True:
            while position < len(self._told):
                if self._told[position] is not last:
                    last = self._told[position]
                    yield last
                elif position + 1 < len(self._told):
                    position += 1
                else:
                    break
            if self._is_over:
                break
            await self._changed.wait()
        if self._error is not None:
            raise self._error
