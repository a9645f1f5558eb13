"""Models that are asleep."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")

MAX_SLEEPERS = 8
"""Each has a tokenizer and a program, tens of megabytes, and a file that is mapped."""


class Sleepers(Generic[T]):
    """At most MAX_SLEEPERS models by key; the longest asleep is unloaded when there are more.

    unload: must not raise.
    """

    def __init__(self, unload: Callable[[T], Awaitable[None]]) -> None:
        self._unload_model = unload
        self._models: dict[str, T] = {}  # the longest asleep first
        self._unloads: dict[str, asyncio.Task[None]] = {}

    def get(self, key: str) -> T | None:
        return self._models.get(key)

    def all(self) -> list[T]:
        """The longest asleep first."""
        return list(self._models.values())

    def add(self, key: str, model: T) -> None:
        self._models[key] = model
        if len(self._models) > MAX_SLEEPERS:
            self._start_unload(next(iter(self._models)))

    async def take(self, key: str) -> T | None:
        """The model is no longer among the sleepers; None: it was not. Waits for an unload of it to end."""
        if (task := self._unloads.get(key)) is not None:
            await asyncio.wait([task])
        return self._models.pop(key, None)

    async def unload(self, key: str) -> None:
        """It is gone when this returns."""
        if key in self._models:
            self._start_unload(key)
        if (task := self._unloads.get(key)) is not None:
            await asyncio.wait([task])

    async def close(self) -> None:
        """Waits for the unloads that are under way; sleeping models end with the worker."""
        await asyncio.gather(*self._unloads.values(), return_exceptions=True)

    def _start_unload(self, key: str) -> None:
        task = asyncio.ensure_future(self._unload_model(self._models.pop(key)))
        self._unloads[key] = task
        task.add_done_callback(lambda _: self._unloads.pop(key))
