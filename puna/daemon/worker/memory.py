"""The one place in the daemon that knows limits of memory: of all workers together, and of each of them.

What one worker lacks is moved to it from where it is missed least: all are asked what giving it up would
cost, and the cheapest give first. A single worker has the whole.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

from puna.engine.memory.offers import Level, Offer, Short
from puna.kv.limits import NOTHING, Limits, total
from puna.worker.call_client import WorkerDied
from puna.worker.calls import Call, Caller
from puna.worker.engine.messages import EndLease, GetOffers, GiveUp, Lease, Leased, Ready, SetLimits

R = TypeVar("R")

_PART = 16
"""Who lacks something will go on growing: it gets at least this part of the whole, if that takes no more than
what is cached elsewhere."""
_LAST_S = math.inf
"""The order of somebody for whom no request makes way."""


class Client(Caller, Protocol):
    """As puna.worker.engine.client.EngineClient."""

    on_short: Callable[[Short], None]


class Worker(Protocol):
    """As puna.daemon.worker.supervisor.WorkerSupervisor."""

    async def call(self, message: Call[R], descriptors: Sequence[int] = ()) -> R:
        """Waits for a worker. Raises WorkerDied."""

    async def ask(self, message: Call[R]) -> R | None:
        """None: there is no worker."""


@dataclass(slots=True)
class _Place:
    """Limits and leases of one worker, which its successor gets when it dies."""

    limits: Limits
    leased_bytes: int = 0
    leased_weight_bytes: int = 0


class _Found(NamedTuple):
    """The offer of a worker."""

    giver: Worker
    offer: Offer


class WorkersMemory:
    """Limits and leases, which outlive the workers that were told of them.

    The workers' limits are never more than the whole together: one's is lowered before another's is raised.
    """

    def __init__(self) -> None:
        self._kv_limit_bytes: int | None = None
        self._memory_limit_bytes: int | None = None
        self._places: dict[Worker, _Place] = {}
        self._moving = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()

    async def restore(self, worker: Worker, client: Client, ready: Ready) -> None:
        """Tells a new process of a worker, which has no models yet. Raises WorkerDied."""
        place = self._places.get(worker)
        if place is not None and (place.leased_bytes or place.leased_weight_bytes):
            # First, and sent before anything else can be: who ends a lease now tells this process, too.
            await client.call(Lease(place.leased_bytes, is_held=True, weight_bytes=place.leased_weight_bytes))
        must_tell = (self._kv_limit_bytes, self._memory_limit_bytes) != (None, None)
        # What the first process finds holds for later ones: they may find less, because of what is leased.
        if self._kv_limit_bytes is None:
            self._kv_limit_bytes = ready.kv_limit_bytes
        if self._memory_limit_bytes is None:
            self._memory_limit_bytes = ready.memory_limit_bytes
        if place is None:
            self._places[worker] = _Place(self._nobodys)
        client.on_short = lambda short: self._run(self._help(worker, short))
        if must_tell:
            await client.call(self._limits_of(worker))

    async def set_limits(
        self, worker: Worker, kv_limit_bytes: int | None, memory_limit_bytes: int | None
    ) -> int:
        """Of all workers together; None: as before. Each gets its part of what is new, or gives it.

        Returns by how many bytes what is in use exceeds the new limits: what running requests hold of it goes
        as they finish. Raises WorkerDied if `worker` does, which is waited for.
        """
        if kv_limit_bytes is not None:
            self._kv_limit_bytes = kv_limit_bytes
        if memory_limit_bytes is not None:
            self._memory_limit_bytes = memory_limit_bytes
        if worker not in self._places:
            await worker.call(SetLimits())  # waits for its first process, which is told by restore()
        async with self._moving:
            if len(self._places) > 1:
                await self._gather(NOTHING - self._nobodys, NOTHING - self._nobodys, _LAST_S)
            for each in (worker, *self._places):
                place = self._places[each]
                place.limits = (place.limits + self._nobodys).at_least(NOTHING)
            others = [each for each in self._places if each is not worker]
            excess = [await each.ask(self._limits_of(each)) or 0 for each in others]
            return await worker.call(self._limits_of(worker)) + sum(excess)

    async def lease(self, worker: Worker, num_bytes: int, weight_bytes: int = 0) -> Leased:
        """Memory of a worker for somebody outside, and for weights there. Raises WorkerDied. Cancelled, it
        leaves nothing leased.
        """
        asked = asyncio.ensure_future(self._lease(worker, num_bytes, weight_bytes))
        try:
            return await asyncio.shield(asked)
        except asyncio.CancelledError:
            self._run(self._take_back(worker, asked, num_bytes, weight_bytes))
            raise

    async def end_lease(self, worker: Worker, num_bytes: int, weight_bytes: int = 0) -> None:
        """So much of what was leased is free again."""
        self._places[worker].leased_bytes -= num_bytes
        self._places[worker].leased_weight_bytes -= weight_bytes
        await worker.ask(EndLease(num_bytes, weight_bytes))

    async def close(self) -> None:
        """Nothing moves any more."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def _whole(self) -> Limits:
        assert self._kv_limit_bytes is not None, "no worker was there"
        assert self._memory_limit_bytes is not None, "no worker was there"
        return Limits(self._kv_limit_bytes, self._memory_limit_bytes)

    @property
    def _nobodys(self) -> Limits:
        """The part that no worker has; negative while the whole was lowered, and they have not given it."""
        return self._whole - total(place.limits for place in self._places.values())

    def _limits_of(self, worker: Worker, reachable: Limits | None = None) -> SetLimits:
        limits = self._places[worker].limits
        return SetLimits(limits.kv_bytes, limits.memory_bytes, self._whole, reachable)

    async def _lease(self, worker: Worker, num_bytes: int, weight_bytes: int) -> Leased:
        message = Lease(num_bytes, weight_bytes=weight_bytes)
        leased = await worker.call(message)
        if not leased.granted and len(self._places) > 1:
            lack = Limits(0, weight_bytes).plus(num_bytes - leased.available_bytes)
            await self._grant(worker, lack, _LAST_S)
            leased = await worker.call(message)
        if leased.granted:
            self._places[worker].leased_bytes += num_bytes
            self._places[worker].leased_weight_bytes += weight_bytes
        return leased

    async def _take_back(
        self, worker: Worker, asked: asyncio.Future[Leased], num_bytes: int, weight_bytes: int
    ) -> None:
        """A lease that nobody waits for any more."""
        with suppress(WorkerDied):
            if (await asked).granted:
                await self.end_lease(worker, num_bytes, weight_bytes)

    async def _grant(self, worker: Worker, lack: Limits, order_s: float) -> None:
        """Raises a worker's limits by what it lacks, as far as others give it."""
        part = Limits(self._whole.kv_bytes // _PART, self._whole.memory_bytes // _PART)
        wanted = Limits(
            max(lack.kv_bytes, part.kv_bytes) if lack.kv_bytes else 0,
            max(lack.memory_bytes, part.memory_bytes) if lack.memory_bytes else 0,
        )
        async with self._moving:
            free = self._nobodys.at_least(NOTHING)
            reachable = free + await self._gather(lack - free, wanted - free, order_s, worker)
            self._places[worker].limits += self._nobodys.at_least(NOTHING).at_most(wanted)
            reach = None if reachable.covers(lack) else reachable
            await worker.ask(self._limits_of(worker, reach))

    async def _gather(
        self, lack: Limits, wanted: Limits, order_s: float, asking: Worker | None = None
    ) -> Limits:
        """Has workers give up what is lacking, the cheapest first; of what is cached, what is wanted.

        asking: a worker that gives up what it has itself where that is cheaper. Returns what others could
        give, now or when requests end.
        """
        orders = self._orders(order_s, asking)
        found = [
            _Found(giver, offer)
            for giver in self._places
            for offer in await giver.ask(GetOffers(wanted.at_least(NOTHING), orders[giver])) or []
            # What is free or cached there it has counted before it asked.
            if giver is not asking or Level.CACHED < offer.level < Level.ENDING
        ]
        parts: dict[Worker, Limits] = {}
        for giver, offer in sorted(found, key=lambda each: each.offer.cost):
            most = wanted if offer.level <= Level.CACHED else lack
            part = offer.gives.at_most(most.at_least(NOTHING))
            lack, wanted = lack - part, wanted - part
            if offer.level is not Level.ENDING:
                parts[giver] = parts.get(giver, NOTHING) + part
        for giver, part in parts.items():
            if part and giver is not asking:
                self._places[giver].limits -= await giver.ask(GiveUp(part, orders[giver])) or NOTHING
        return total(offer.gives for giver, offer in found if giver is not asking)

    def _orders(self, order_s: float, asking: Worker | None) -> dict[Worker, float]:
        """As what an order counts in each worker: of two who came at the same time, one goes first."""
        workers = list(self._places)
        number = len(workers) if asking is None else workers.index(asking)
        after_s = math.nextafter(order_s, math.inf)
        return {worker: order_s if i >= number else after_s for i, worker in enumerate(workers)}

    async def _help(self, worker: Worker, short: Short) -> None:
        await self._grant(worker, short.lack, short.order_s)

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
