"""The worker's own threads take prefixes to disk and back; whoever leaves meanwhile is cleaned up after."""

from __future__ import annotations

import asyncio
import queue
import threading
from pathlib import Path
from typing import Any

import pytest

from puna.engine.offload import disk
from puna.kv.files.block_files import BlockFiles
from puna.worker import file_threads
from puna.worker.engine.client import EngineClient
from puna.worker.engine.messages import GetStats, SavePrefixes, Sleep, Unload, Wake
from puna.worker.engine.offload_threads import OffloadThreads
from tests.engine.toy import expected_tokens, toy_request
from tests.worker.harness import Served, generate, load, outputs_of, served

pytestmark = pytest.mark.native

TOY = Path("0")
PROMPT = [i % 7 for i in range(1000)]


@pytest.fixture(autouse=True)
def reading_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    """A toy computes faster than any disk."""
    monkeypatch.setattr("puna.engine.offload.prefix_restores.PrefixRestores._pays", lambda *_: True)


async def cached(client: EngineClient, request_id: str, max_tokens: int = 5, **fields: object) -> int:
    """How much of the prompt was cached."""
    request = toy_request(request_id, PROMPT, max_tokens, **fields)
    outputs = [o async for o in outputs_of(client, request)]
    assert [token for output in outputs for token in output.tokens] == expected_tokens(PROMPT, max_tokens)
    return outputs[-1].stats.cached_tokens


async def until_empty(s: Served) -> None:
    while s.engine.memory.budget.committed_bytes:  # noqa: ASYNC110
        await asyncio.sleep(0.001)


def test_a_model_that_is_loaded_again_finds_its_prefixes(tmp_path: Path):
    async def main() -> None:
        async with served(kv_dir=str(tmp_path)) as s:
            for number in range(5):
                await load(s.client, "toy", TOY)
                assert await cached(s.client, str(number)) == (len(PROMPT) - 1 if number else 0)
                await s.client.call(Unload("toy"))

    asyncio.run(main())


def test_a_model_that_slept_finds_its_prefixes(tmp_path: Path):
    async def main() -> None:
        async with served(kv_dir=str(tmp_path)) as s:
            await load(s.client, "toy", TOY)
            assert await cached(s.client, "first") == 0
            await s.client.call(Sleep("toy"))
            await until_empty(s)
            await s.client.call(Wake("toy"))
            assert await cached(s.client, "again") == len(PROMPT) - 1
            await s.client.call(Sleep("toy"))
            await s.client.call(Wake("toy"))  # at once
            assert await cached(s.client, "once more") == len(PROMPT) - 1

    asyncio.run(main())


def test_an_idle_model_gives_its_memory_back_and_finds_its_prefixes_again(tmp_path: Path):
    async def main() -> None:
        async with served(kv_dir=str(tmp_path), kv_idle_s=0.05) as s:
            await load(s.client, "toy", TOY)
            assert await cached(s.client, "first") == 0
            await until_empty(s)
            assert await cached(s.client, "again") == len(PROMPT) - 1
            disk = (await s.client.call(GetStats())).disk
            assert disk.restored_tokens >= 992
            assert disk.saved_tokens >= 992
            assert 0 < disk.num_bytes <= disk.limit_bytes

    asyncio.run(main())


def test_an_idle_model_is_put_away_though_another_is_busy(tmp_path: Path):
    async def main() -> None:
        async with served(kv_dir=str(tmp_path), kv_idle_s=0.05) as s:
            await load(s.client, "toy", TOY)
            await load(s.client, "other", Path("1"))
            stream = outputs_of(s.client, toy_request("long", [1], None, model_id="other"))
            await anext(stream)
            assert await cached(s.client, "r") == 0
            while (await s.client.call(GetStats())).models[0].committed_kv_bytes:
                await anext(stream)
            assert (await s.client.call(GetStats())).models[1].num_running == 1
            await stream.aclose()

    asyncio.run(main())


def test_what_is_cached_when_the_worker_ends_is_there_in_the_next(tmp_path: Path):
    async def main() -> None:
        async with served(kv_dir=str(tmp_path)) as s:
            await load(s.client, "toy", TOY)
            assert await cached(s.client, "first") == 0
            await s.client.call(SavePrefixes())
        async with served(kv_dir=str(tmp_path)) as s:
            await load(s.client, "toy", TOY)
            assert await cached(s.client, "again") == len(PROMPT) - 1

    asyncio.run(main())


def test_saving_is_answered_without_a_disk_or_a_model(tmp_path: Path):
    async def main() -> None:
        async with served() as s:
            await s.client.call(SavePrefixes())
        async with served(kv_dir=str(tmp_path)) as s:
            await s.client.call(SavePrefixes())

    asyncio.run(main())


def test_blocks_of_running_requests_are_saved_too(tmp_path: Path):
    async def main() -> None:
        async with served(kv_dir=str(tmp_path)) as s:
            await load(s.client, "toy", TOY)
            stream = outputs_of(s.client, toy_request("long", PROMPT, None))
            await anext(stream)
            await s.client.call(SavePrefixes())
            await stream.aclose()
        async with served(kv_dir=str(tmp_path)) as s:
            await load(s.client, "toy", TOY)
            assert await cached(s.client, "again") >= 992

    asyncio.run(main())


@pytest.mark.parametrize("turn", range(4))
def test_leaving_in_the_middle_of_it(tmp_path: Path, turn: int):
    async def main() -> None:
        async with served(kv_dir=str(tmp_path)) as s:  # which checks that nothing is left
            await load(s.client, "toy", TOY)
            await cached(s.client, "first")
            await s.client.call(Unload("toy"))
            await load(s.client, "toy", TOY)
            request = asyncio.create_task(generate(s.client, toy_request("r", PROMPT, 5)))
            await asyncio.sleep(0.002 * turn)
            if turn % 2:
                await s.client.call(Unload("toy"))
            await s.client.close()
            await asyncio.gather(request, return_exceptions=True)

    asyncio.run(main())


def test_who_runs_takes_a_block_that_is_read_into_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    reading, go_on, read = threading.Event(), threading.Event(), BlockFiles.read

    def slow_read(*arguments: Any) -> None:
        reading.set()
        go_on.wait()
        read(*arguments)

    async def main() -> None:
        async with served(num_blocks=len(PROMPT) // 16 + 1, kv_dir=str(tmp_path)) as s:
            await load(s.client, "toy", TOY)
            await cached(s.client, "first", max_tokens=1)
            await s.client.call(Unload("toy"))
            await load(s.client, "toy", TOY)
            reads = asyncio.create_task(cached(s.client, "reads", max_tokens=1))
            await asyncio.to_thread(reading.wait)
            other = toy_request("other", [1] * len(PROMPT), 1)
            assert await generate(s.client, other) == expected_tokens([1] * len(PROMPT), 1)
            assert await reads == 0
            go_on.set()

    monkeypatch.setattr(BlockFiles, "read", slow_read)
    try:
        asyncio.run(main())
    finally:
        go_on.set()


def test_who_looks_for_a_prefix_does_not_wait_for_what_others_read():
    to_do, go_on = queue.SimpleQueue(), threading.Event()
    threads, done = OffloadThreads(to_do.put), []
    try:
        threads.start("read", go_on.wait, lambda: done.append("read"), num_threads=2)
        threads.start("find", lambda: None, lambda: done.append("looked"))
        to_do.get(timeout=30)()
        assert done == ["looked"]
    finally:
        go_on.set()
        threads.close()
    assert done == ["looked", "read"]


def test_a_disk_that_hangs_delays_neither_requests_nor_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    answers, read = threading.Event(), BlockFiles.read

    def hanging_read(*arguments: Any) -> None:
        answers.wait()
        read(*arguments)

    async def main() -> None:
        async with served(kv_dir=str(tmp_path)) as s:
            await load(s.client, "toy", TOY)
            await cached(s.client, "first")
            await s.client.call(Unload("toy"))
            await load(s.client, "toy", TOY)
            monkeypatch.setattr(BlockFiles, "read", hanging_read)
            assert await cached(s.client, "hangs") == 0
            assert await cached(s.client, "knows") == len(PROMPT) - 1

    monkeypatch.setattr(disk, "PATIENCE_S", 0.05)
    monkeypatch.setattr(file_threads, "CLOSE_S", 0.05)
    try:
        asyncio.run(main())  # which ends the server, too
    finally:
        answers.set()
