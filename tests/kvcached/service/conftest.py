"""A service in a thread of the test, with a budget that is a counter."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import uvloop

from puna.engine.observation.stats import EngineStats, ModelStats
from puna.kvcached.service.endpoint import open_endpoint
from puna.kvcached.service.service import KvCachedService
from puna.worker.call_client import WorkerDied
from puna.worker.engine.messages import Leased
from tests.kvcached.service.client_process import ClientProcess
from tests.kvcached.service.stubs import Client

PAGE = 4096
MIB = 1 << 20
TIMEOUT_S = 60


@dataclass
class Usage:
    stats: EngineStats | None
    model_names: dict[str, str]


@dataclass
class FakeBudget:
    """What the worker does, without one."""

    limit: int = 64 * MIB
    memory_limit: int = 1 << 40
    leased: int = 0
    is_dead: bool = False
    may_answer: threading.Event = field(default_factory=threading.Event)
    models: list[ModelStats] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.may_answer.set()

    async def lease(self, num_bytes: int) -> Leased:
        await self._answer()
        available = self.limit - self.leased
        if num_bytes <= available:
            self.leased += num_bytes
        return Leased(num_bytes <= available, max(available, 0))

    async def end_lease(self, num_bytes: int) -> None:
        self.leased -= num_bytes
        assert self.leased >= 0

    async def observe(self) -> Usage:
        await self._answer()
        stats = EngineStats(self.limit, self.models, self.memory_limit, self.leased)
        return Usage(stats, {"sha256:1": "llama3.2"})

    async def _answer(self) -> None:
        while not self.may_answer.is_set():  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        if self.is_dead:
            raise WorkerDied
        await asyncio.sleep(0)


class Served:
    def __init__(self, path: Path, loop: asyncio.AbstractEventLoop, service: KvCachedService) -> None:
        self.path = path
        self.budget: Any = service.budget
        self.service = service
        self.loop = loop
        self._clients: list[Client | ClientProcess] = []

    def client(self) -> Client:
        self._clients.append(Client(self.path))
        return self._clients[-1]

    def client_process(self) -> ClientProcess:
        self._clients.append(ClientProcess(self.path))
        return self._clients[-1]

    async def set_limit(self, limit: int) -> int:
        """Returns what is leased at that moment."""
        self.budget.limit = limit
        return self.budget.leased

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(TIMEOUT_S)

    def objects(self) -> list[str]:
        """Names of the shared memory that is there."""
        own = self.service.allocations._memory._lock_path.name
        return sorted(path.name for path in Path("/dev/shm").glob(f"{own}-*"))

    def end_clients(self) -> None:
        for client in self._clients:
            client.kill() if isinstance(client, ClientProcess) else client.close()


@contextmanager
def serving(path: Path, budget: Any) -> Iterator[Served]:
    loop = uvloop.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        with open_endpoint(path) as endpoint:
            service = asyncio.run_coroutine_threadsafe(start(budget, endpoint), loop).result(TIMEOUT_S)
            served = Served(path, loop, service)
            try:
                yield served
            finally:
                served.end_clients()
                served.run(service.close())
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def start(budget, endpoint):
    service = KvCachedService(budget, endpoint)
    await service.start()
    return service


@pytest.fixture
def served(tmp_path) -> Iterator[Served]:
    with serving(tmp_path / "kvcached.sock", FakeBudget()) as served:
        yield served


def eventually(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)
