"""Two workers under one limit: memory goes where it is needed, and is never more than there is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from puna.daemon.worker.memory import WorkersMemory
from puna.engine import Request, StepOutput
from puna.kv.limits import Limits
from puna.worker.cage import CageLevel
from puna.worker.engine.messages import GetStats, Hold, Ready
from tests.engine.toy import BLOCK_BYTES, expected_tokens, toy_request
from tests.worker.harness import Served, load, outputs_of, served

pytestmark = pytest.mark.native

TOY = Path("0")
NUM_BLOCKS = 100
READY = Ready(
    kv_limit_bytes=NUM_BLOCKS * BLOCK_BYTES,
    memory_limit_bytes=NUM_BLOCKS * BLOCK_BYTES,
    cage=CageLevel(landlock=0, seccomp=False, is_low=False),
)


class Refused(Exception):
    """What a request ended with."""


class Worker:
    """As a supervisor."""

    def __init__(self, served: Served) -> None:
        self.served = served
        self.client = served.client

    async def call(self, message: Any) -> Any:
        return await self.client.call(message)

    ask = call

    @property
    def limits(self) -> Limits:
        return self.served.engine.memory.budget.limits

    @property
    def taken_bytes(self) -> int:
        return self.served.engine.memory.budget.taken.memory_bytes

    @property
    def kv_blocks(self) -> int:
        return self.limits.kv_bytes // BLOCK_BYTES

    async def generate(self, name: str, num_prompt: int, count: int, model: str = "toy") -> None:
        """Checks what comes."""
        prompt = [ord(name[-1]) % 50] * num_prompt
        request = toy_request(name, prompt, count, model_id=model, num_draft=0)
        outputs = await asyncio.wait_for(self._outputs(request), 30)
        if error := outputs[-1].error:
            raise Refused(error)
        tokens = [token for output in outputs for token in output.tokens]
        assert tokens == expected_tokens(prompt, count)

    async def _outputs(self, request: Request) -> list[StepOutput]:
        return [output async for output in outputs_of(self.client, request)]


class Pair:
    """Two workers whose limits are watched."""

    def __init__(self, memory: WorkersMemory, a: Worker, b: Worker) -> None:
        self.memory, self.a, self.b = memory, a, b

    def check(self) -> None:
        both = self.a.limits + self.b.limits
        assert Limits(READY.kv_limit_bytes, READY.memory_limit_bytes).covers(both), "more than there is"


@asynccontextmanager
async def pair() -> AsyncIterator[Pair]:
    memory = WorkersMemory()
    settings = {"num_blocks": NUM_BLOCKS, "memory_limit_bytes": NUM_BLOCKS * BLOCK_BYTES, "kv_idle_s": 3600}
    async with served(**settings) as first, served(**settings) as second:
        a, b = Worker(first), Worker(second)
        for worker in (a, b):
            await memory.restore(worker, worker.client, READY)
        pair = Pair(memory, a, b)
        watching = asyncio.create_task(watch(pair))
        try:
            yield pair
        finally:
            watching.cancel()
            await memory.close()
            await asyncio.gather(watching, return_exceptions=True)
            assert watching.cancelled(), watching.exception()


async def watch(pair: Pair) -> None:
    while True:
        pair.check()
        await asyncio.sleep(0.001)


def test_memory_goes_to_and_fro():
    async def main() -> None:
        async with pair() as p:
            for worker in (p.a, p.b):
                await load(worker.client, "toy", TOY)
            for i in range(6):
                worker = (p.a, p.b)[i % 2]
                await worker.generate(f"r{i}", 60 * 16, 40)
                assert worker.kv_blocks >= 62

    asyncio.run(main())


def test_both_get_on_when_neither_fits_beside_the_other():
    async def main() -> None:
        async with pair() as p:
            for worker in (p.a, p.b):
                await load(worker.client, "toy", TOY)
            work = [worker.generate(f"r{i}", 40 * 16, 300) for i in range(4) for worker in (p.a, p.b)]
            await asyncio.gather(*work)

    asyncio.run(main())


def test_idle_models_make_room_for_those_of_another_worker():
    async def main() -> None:
        async with pair() as p:
            for worker in (p.a, p.b):
                worker.served.backend.weight_bytes = 60 * BLOCK_BYTES
                await load(worker.client, "toy", TOY)
                worker.client.tell(Hold("toy", is_held=False))
            for i in range(4):
                worker = (p.a, p.b)[i % 2]
                await worker.generate(f"r{i}", 20 * 16, 20)
                (model,) = (await worker.call(GetStats())).models
                assert not model.is_asleep
            (model,) = (await p.a.call(GetStats())).models
            assert model.is_asleep

    asyncio.run(main())


def test_nobody_starves_while_another_worker_is_never_idle():
    async def main() -> None:
        async with pair() as p:
            for worker in (p.a, p.b):
                await load(worker.client, "toy", TOY)
            is_over = asyncio.Event()

            async def keep_busy(name: str) -> None:
                while not is_over.is_set():
                    await p.a.generate(name, 30 * 16, 100)

            busy = [asyncio.create_task(keep_busy(f"busy{i}")) for i in range(4)]
            await asyncio.sleep(0.1)
            for i in range(3):
                await p.b.generate(f"r{i}", 80 * 16, 50)
            is_over.set()
            await asyncio.gather(*busy)

    asyncio.run(main())


def test_what_is_guaranteed_stays_and_a_request_that_needs_it_is_refused():
    async def main() -> None:
        async with pair() as p:
            await load(p.a.client, "toy", TOY, 1.0, 50 * BLOCK_BYTES)
            await load(p.b.client, "toy", TOY)
            await p.b.generate("fits", 40 * 16, 20)
            assert p.a.kv_blocks >= 50
            with pytest.raises(Refused, match="memory"):
                await p.b.generate("large", 60 * 16, 20)
            with pytest.raises(Refused, match="memory"):
                await p.b.generate("huge", 120 * 16, 20)
            assert p.a.kv_blocks >= 50
            await p.b.generate("again", 40 * 16, 20)

    asyncio.run(main())


def test_leases_take_from_all_workers():
    async def main() -> None:
        async with pair() as p:
            await load(p.b.client, "toy", TOY)
            await p.b.generate("r", 60 * 16, 20)
            leased = await p.memory.lease(p.a, 90 * BLOCK_BYTES)
            assert leased.granted
            assert not (await p.memory.lease(p.a, 11 * BLOCK_BYTES)).granted
            await p.memory.end_lease(p.a, 90 * BLOCK_BYTES)
            await p.b.generate("again", 90 * 16, 20)

    asyncio.run(main())


def test_the_whole_is_lowered_where_it_costs_least_and_raised():
    async def main() -> None:
        async with pair() as p:
            await load(p.b.client, "toy", TOY)
            await p.b.generate("r", 40 * 16, 20)
            kept_blocks = p.b.kv_blocks
            assert await p.memory.set_limits(p.a, kept_blocks * BLOCK_BYTES, None) == 0
            assert (p.a.kv_blocks, p.b.kv_blocks) == (0, kept_blocks)
            assert await p.memory.set_limits(p.a, 10 * BLOCK_BYTES, None) == 0
            assert p.a.kv_blocks + p.b.kv_blocks == 10
            with pytest.raises(Refused, match="memory"):
                await p.b.generate("s", 11 * 16, 20)
            assert await p.memory.set_limits(p.a, NUM_BLOCKS * BLOCK_BYTES, None) == 0
            await p.b.generate("t", 90 * 16, 20)

    asyncio.run(main())


def test_a_worker_that_is_started_again_has_what_the_last_one_had():
    async def main() -> None:
        async with pair() as p:
            await load(p.b.client, "toy", TOY)
            await p.b.generate("r", 40 * 16, 20)
            limits = p.b.limits
            assert (await p.memory.lease(p.b, BLOCK_BYTES)).granted
            async with served() as again:
                await p.memory.restore(p.b, again.client, READY)
                assert again.engine.memory.budget.limits == limits
                assert again.engine.memory.budget.leased_bytes == BLOCK_BYTES

    asyncio.run(main())
