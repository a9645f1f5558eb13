"""Whose memory is whose: allocations are leased from the budget, committed, and given back, on every path."""

from __future__ import annotations

import asyncio
import logging
import secrets
import threading
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from puna.config.memory import available_bytes
from puna.config.sizes import binary_size
from puna.engine.observation.stats import EngineStats
from puna.kvcached.service.clients import Client
from puna.kvcached.service.grpc_connection import RpcError, Status
from puna.kvcached.service.shared_memory import PAGE_BYTES, OutOfSharedMemory, SharedMemory
from puna.worker.engine.messages import Leased

log = logging.getLogger(__name__)
T = TypeVar("T")

MAX_MODEL_ID_BYTES = 256
_NUM_THREADS = 4
"""Memory takes its time to come, and to go."""


class Usage(Protocol):
    """Who holds what, apart from this service's clients."""

    @property
    def stats(self) -> EngineStats | None: ...
    @property
    def model_names(self) -> Mapping[str, str]: ...


class Budget(Protocol):
    """What puna.daemon.runtime.Runtime does; raises WorkerDied throughout."""

    async def lease(self, num_bytes: int) -> Leased: ...
    async def end_lease(self, num_bytes: int) -> None: ...
    async def observe(self) -> Usage: ...


@dataclass(frozen=True, eq=False, slots=True)
class Allocation:
    """Memory of one client."""

    handle: int
    owner: Client
    model_id: str
    shm_name: str
    size: int
    """Bytes; whole pages."""


class Allocations:
    """All of one service."""

    def __init__(self, budget: Budget, memory: SharedMemory) -> None:
        self._budget = budget
        self._memory = memory
        self._by_handle: dict[int, Allocation] = {}
        self._threads = ThreadPoolExecutor(_NUM_THREADS, "kvcached")
        # Never cancelled: what is half done when a caller leaves is done, or undone, all the same.
        self._work: set[asyncio.Task[Any]] = set()

    async def allocate(self, owner: Client, size: int, model_id: str) -> Allocation:
        """Raises RpcError, WorkerDied. Cancelled, it leaves nothing behind."""
        _check(size, model_id)
        stop = threading.Event()
        work = self._run(self._allocate(owner, -(-size // PAGE_BYTES) * PAGE_BYTES, model_id, stop))
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            stop.set()
            work.add_done_callback(self._discard)
            raise

    async def free(self, owner: Client, handle: int) -> int:
        """Bytes that are free again. Raises RpcError."""
        allocation = self._by_handle.get(handle)
        if allocation is None:
            raise RpcError(Status.NOT_FOUND, f"there is no allocation {handle}, or it is free already")
        if allocation.owner is not owner:
            text = f"allocation {handle} belongs to {allocation.owner}, not to {owner}"
            raise RpcError(Status.PERMISSION_DENIED, text)
        await asyncio.shield(self._give_back([allocation]))
        return allocation.size

    def take_back(self, handle: int) -> None:
        """What its owner never learned of, unless it is free already."""
        if (allocation := self._by_handle.get(handle)) is not None:
            self._give_back([allocation])

    async def available(self) -> int:
        """Bytes that could be allocated now. Raises WorkerDied."""
        leased = await self._budget.lease(0)
        return max(min(leased.available_bytes, self._memory.free_bytes(), available_bytes()), 0)

    def reclaim(self, owner: Client) -> None:
        """Everything of a client that has ended."""
        if left := self.of(owner):
            size = sum(each.size for each in left)
            log.info("%s has ended, reclaiming %s in %d allocations", owner, binary_size(size), len(left))
            self._give_back(left)

    def of(self, owner: Client) -> list[Allocation]:
        return [each for each in self._by_handle.values() if each.owner is owner]

    def all(self) -> Iterable[Allocation]:
        return self._by_handle.values()

    async def close(self) -> None:
        """When nobody calls any more, and the budget ends as well."""
        while self._work:
            await asyncio.wait(self._work)
        self._threads.shutdown()
        self._by_handle.clear()

    async def _allocate(self, owner: Client, size: int, model_id: str, stop: threading.Event) -> Allocation:
        leased = await self._budget.lease(size)
        if not leased.granted:
            raise RpcError(Status.RESOURCE_EXHAUSTED, await self._refusal(size, leased.available_bytes))
        handle = secrets.randbelow((1 << 63) - 1) + 1  # unknown to other clients and to later daemons
        try:
            name = await self._in_thread(lambda: self._commit(handle, size, stop))
        except BaseException as error:
            await self._budget.end_lease(size)
            if isinstance(error, OutOfSharedMemory):
                raise RpcError(Status.RESOURCE_EXHAUSTED, str(error)) from error
            raise
        allocation = Allocation(handle, owner, model_id, name, size)
        self._by_handle[handle] = allocation
        if owner.has_ended:
            self._give_back([allocation])
        return allocation

    def _commit(self, handle: int, size: int, stop: threading.Event) -> str:
        # The system would rather end a process than refuse it.
        if size > (available := available_bytes()):
            raise OutOfSharedMemory(
                f"{binary_size(size)} are needed, the system has {binary_size(available)} available"
            )
        return self._memory.create(handle, size, stop)

    def _discard(self, work: asyncio.Task[Allocation]) -> None:
        if not work.cancelled() and work.exception() is None:
            self._give_back([work.result()])

    def _give_back(self, allocations: list[Allocation]) -> asyncio.Task[None]:
        """From now on, nobody has them."""
        held = [each for each in allocations if self._by_handle.pop(each.handle, None) is not None]
        return self._run(self._remove(held))

    async def _remove(self, allocations: list[Allocation]) -> None:
        def remove() -> int:
            removed = 0
            for each in allocations:
                try:
                    self._memory.remove(each.shm_name)
                    removed += each.size
                except OSError as error:
                    log.error("%s cannot be removed, so it still counts: %s", each.shm_name, error)
            return removed

        await self._budget.end_lease(await self._in_thread(remove))

    async def _refusal(self, size: int, available: int) -> str:
        held = _held_by_models(await self._budget.observe())
        for each in self._by_handle.values():
            held[str(each.owner)] += each.size
        holders = ", ".join(
            f"{name} {binary_size(num_bytes)}" for name, num_bytes in held.items() if num_bytes
        )
        text = f"{binary_size(size)} are needed, {binary_size(available)} are available"
        return text + (f"; in use: {holders}" if holders else "")

    async def _in_thread(self, function: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, function)

    def _run(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.create_task(work)
        self._work.add(task)
        task.add_done_callback(self._work.discard)
        return task


def _held_by_models(usage: Usage) -> Counter[str]:
    """Bytes that each has, or that are guaranteed to it, by name."""
    held: Counter[str] = Counter()
    if (stats := usage.stats) is not None:
        for model in stats.models:
            name = usage.model_names.get(model.model_id, model.model_id)
            held[name] = max(model.used_kv_bytes, model.guaranteed_kv_bytes)
        weights = sum(model.weight_bytes for model in stats.models if not model.is_asleep)
        if stats.memory_limit_bytes - weights < stats.kv_limit_bytes:  # they leave KV less than its own limit
            held["weights"] = weights
    return held


def _check(size: int, model_id: str) -> None:
    if size <= 0:
        raise RpcError(Status.INVALID_ARGUMENT, f"a size of {size} bytes makes no sense")
    if len(model_id.encode()) > MAX_MODEL_ID_BYTES:
        text = f"a model_id has at most {MAX_MODEL_ID_BYTES} bytes, not {len(model_id.encode())}"
        raise RpcError(Status.INVALID_ARGUMENT, text)
