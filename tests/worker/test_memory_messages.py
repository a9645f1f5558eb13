"""Limits, leases and what is given back, through the socket and when the system is short of memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from puna.engine.memory.load_errors import ModelDoesNotFit
from puna.worker.engine.messages import EndLease, GetStats, Hold, Lease, SetLimits, TrimKv
from tests.engine.toy import BLOCK_BYTES, expected_tokens, toy_request
from tests.worker.harness import NUM_BLOCKS, Served, generate, load, served

pytestmark = pytest.mark.native

TOY = Path("0")


def test_limits_change_while_requests_run(caplog: pytest.LogCaptureFixture):
    async def main() -> None:
        async with served() as s:
            await load(s.client, "toy", TOY)
            tasks = [
                asyncio.create_task(generate(s.client, toy_request(str(i), [i] * 100, 200, num_draft=0)))
                for i in range(8)
            ]
            for num_blocks in (60, 500, 40, 30):
                assert await s.client.call(SetLimits(num_blocks * BLOCK_BYTES, None)) >= 0
                stats = await s.client.call(GetStats())
                assert stats.kv_limit_bytes == num_blocks * BLOCK_BYTES
            for i, tokens in enumerate(await asyncio.gather(*tasks)):
                assert tokens == expected_tokens([i] * 100, 200)
            assert await s.client.call(SetLimits(None, 1 << 30)) == 0
            assert (await s.client.call(GetStats())).memory_limit_bytes == 1 << 30

    asyncio.run(main())
    assert not caplog.records, "who set them says what is left when idle models sleep"


def test_leases_are_granted_refused_and_ended():
    async def main() -> None:
        async with served() as s:
            leased = await s.client.call(Lease(600 * BLOCK_BYTES))
            assert (leased.granted, leased.available_bytes) == (True, 400 * BLOCK_BYTES)
            leased = await s.client.call(Lease(401 * BLOCK_BYTES))
            assert (leased.granted, leased.available_bytes) == (False, 400 * BLOCK_BYTES)
            await s.client.call(Lease(500 * BLOCK_BYTES, is_held=True))
            assert (await s.client.call(GetStats())).leased_bytes == 1100 * BLOCK_BYTES
            await s.client.call(EndLease(1100 * BLOCK_BYTES))
            assert (await s.client.call(Lease(NUM_BLOCKS * BLOCK_BYTES))).granted

    asyncio.run(main())


def test_guarantees_come_with_the_load_and_shortages_back():
    async def main() -> None:
        async with served() as s:
            await load(s.client, "toy", TOY, 1.0, 900 * BLOCK_BYTES)
            assert (await s.client.call(GetStats())).models[0].guaranteed_kv_bytes == 900 * BLOCK_BYTES
            with pytest.raises(ModelDoesNotFit, match=r"holds .* of KV that is guaranteed to it"):
                await load(s.client, "other", TOY, 1.0, 101 * BLOCK_BYTES)
            s.client.tell(Hold("toy", is_held=False))
            await load(s.client, "other", TOY, 1.0, 101 * BLOCK_BYTES)
            assert [model.is_asleep for model in (await s.client.call(GetStats())).models] == [True, False]

    asyncio.run(main())


def test_trimming_says_what_it_gave_back():
    async def main() -> None:
        async with served(kv_idle_s=3600) as s:
            await load(s.client, "toy", TOY)
            await generate(s.client, toy_request("r", [1] * 100, 5))
            assert await s.client.call(TrimKv()) == 7 * BLOCK_BYTES
            assert await s.client.call(TrimKv()) == 0
            assert (await s.client.call(GetStats())).models[0].committed_kv_bytes == 0

    asyncio.run(main())


class Pressure:
    """As often high as it is asked, but for the first time, which may not count."""

    is_known = True

    def __init__(self) -> None:
        self.num_looks = 0

    def is_high(self) -> bool:
        self.num_looks += 1
        return True


async def until(s: Served, wanted: Callable[[int], bool]) -> None:
    """Watched from outside: a question would be work."""
    while not wanted(s.engine.stats().models[0].committed_kv_bytes):  # noqa: ASYNC110
        await asyncio.sleep(0.001)


def test_a_system_short_of_memory_gets_what_is_cached_bit_by_bit(monkeypatch: pytest.MonkeyPatch):
    pressure = Pressure()
    monkeypatch.setattr("puna.worker.engine.server.MemoryPressure", lambda: pressure)
    monkeypatch.setattr("puna.worker.engine.pressure_relief.LOOK_S", 0.02)

    async def main() -> None:
        async with served(kv_idle_s=3600) as s:
            await load(s.client, "toy", TOY)
            assert pressure.num_looks == 0, "there is nothing to give"
            await generate(s.client, toy_request("r", [1] * 16 * 8, 1))
            await until(s, lambda num_bytes: num_bytes < 8 * BLOCK_BYTES)
            await until(s, lambda num_bytes: num_bytes == 0)
            assert await generate(s.client, toy_request("again", [1] * 20, 5)) == expected_tokens([1] * 20, 5)
            await until(s, lambda num_bytes: num_bytes == 0)
            looks = pressure.num_looks
            await asyncio.sleep(0.1)
            assert pressure.num_looks == looks, "nobody wakes up for nothing"

    asyncio.run(main())
