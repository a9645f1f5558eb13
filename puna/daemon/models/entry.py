"""One model of the residency's table."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Generic, TypeVar

T = TypeVar("T")

FOREVER = timedelta(microseconds=(2**63 - 1) // 1000)
"""The longest duration that clients can express; stands for "never expires"."""


@dataclass(eq=False, slots=True)
class Entry(Generic[T]):
    """One model, from the first request that wants it until it is asleep or unloaded."""

    key: str
    keep_alive_s: float
    ready: asyncio.Task[T] = field(init=False)
    """Waits for room, then wakes or loads."""
    num_holders: int = 0
    """Requests that use the model or wait for it."""
    admitted: bool = False
    """Counts against the limit of loaded models."""
    loaded: bool = False
    leaving: bool = False
    """Takes no more requests: goes now, or as soon as its last holder is done."""
    for_good: bool = False
    """When it goes it is unloaded, and does not sleep."""
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    timer: asyncio.TimerHandle | None = None
    last_used_s: float = 0.0
    idle_since_s: float | None = None
    """Seconds since 1970."""

    @property
    def expires_at(self) -> datetime:
        """When the model leaves if no other request comes, in local time."""
        now = datetime.now().astimezone()
        if self.leaving:
            return now
        start = now
        if not self.num_holders and self.idle_since_s is not None:
            start = datetime.fromtimestamp(self.idle_since_s).astimezone()
        return start + min(FOREVER, timedelta(seconds=min(self.keep_alive_s, FOREVER.total_seconds())))

    def stop_timer(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
