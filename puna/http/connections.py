"""All connections of a server, and who gives way when there are too many."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from enum import Enum
from typing import Protocol

from puna.http.limits import Limits

_LOOK_S = 0.1


class Phase(Enum):
    """What a connection is about."""

    WAITING = 1
    """For a request, or for the rest of its head."""
    RECEIVING = 2
    """A body, with nothing to be answered before."""
    WORKING = 3
    """A whole request is being answered."""


class Client(Protocol):
    """A connection, as this table knows it."""

    def check(self, now_s: float) -> None:
        """Ends what takes too long."""

    def finish(self) -> None:
        """Closes when the reply under way is written, at once if there is none."""

    def abort(self) -> None:
        """Closes at once."""


class Connections:
    """Connections by phase, in each those that have been in it longest first."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._since_s: dict[Phase, dict[Client, float]] = {phase: {} for phase in Phase}
        self._phases: dict[Client, Phase] = {}
        self._left = asyncio.Event()
        self._sweeping: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._phases)

    def all(self) -> list[Client]:
        """A copy."""
        return list(self._phases)

    @property
    def is_crowded(self) -> bool:
        """Whether more requests are being answered than there should be."""
        num_requests = len(self._since_s[Phase.RECEIVING]) + len(self._since_s[Phase.WORKING])
        return num_requests > self._limits.max_requests

    def enter(self, client: Client, phase: Phase) -> None:
        """Opened, or changed over from another phase."""
        loop = asyncio.get_running_loop()
        if (before := self._phases.get(client)) is not None:
            del self._since_s[before][client]
        self._phases[client] = phase
        self._since_s[phase][client] = loop.time()
        if self._sweeping is None:
            self._sweeping = loop.call_later(1.0, self._sweep)

    def leave(self, client: Client) -> None:
        """Closed."""
        if (phase := self._phases.pop(client, None)) is not None:
            del self._since_s[phase][client]
            self._left.set()

    async def make_room(self) -> None:
        """Waits until there is room for one more; who has sent no whole request for a while gives way."""
        loop = asyncio.get_running_loop()
        while len(self) >= self._limits.max_connections:
            self._left.clear()
            if (oldest := self._who_gives_way(loop.time())) is not None:
                oldest.abort()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._left.wait(), _LOOK_S)

    async def emptied(self) -> None:
        """Waits until all are closed."""
        while self._phases:
            self._left.clear()
            await self._left.wait()

    def _who_gives_way(self, now_s: float) -> Client | None:
        for phase in (Phase.WAITING, Phase.RECEIVING):
            for client, since_s in self._since_s[phase].items():
                if now_s - since_s >= self._limits.newcomer_s:
                    return client
                break
        return None

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        for client in self.all():
            client.check(loop.time())
        self._sweeping = loop.call_later(1.0, self._sweep) if self._phases else None
