"""What goes through the socket arrives, in both directions, and whoever leaves is cleaned up after."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path

import pytest

from puna.backends.base import ModelLoadError
from puna.engine import ModelStats, Request, SamplingParams
from puna.engine.memory.load_errors import ModelDoesNotFit
from puna.kv import BLOCK_TOKENS
from puna.worker.engine.client import EngineClient, WorkerDied
from puna.worker.engine.messages import GetStats, GetTrace, Sleep, Unload, Wake
from tests.engine.toy import BLOCK_BYTES, expected_tokens, toy_request
from tests.worker.harness import NUM_BLOCKS, Served, generate, load, outputs_of, served

pytestmark = pytest.mark.native

TOY = Path("0")
MAX_TOKENS = NUM_BLOCKS * BLOCK_TOKENS


def test_requests_are_served_side_by_side():
    async def main() -> None:
        async with served() as s:
            info = await load(s.client, "toy", TOY)
            assert info == (await load(s.client, "other", Path("1")))
            requests = [
                toy_request(f"{m}{i}", [i], 20, model_id=m) for i in range(16) for m in ("toy", "other")
            ]
            results = await asyncio.gather(*(generate(s.client, request) for request in requests))
            for request, tokens in zip(requests, results, strict=True):
                assert tokens == expected_tokens(request.prompt, 20, salt=int(request.model_id == "other"))

    asyncio.run(main())


def test_the_last_output_has_logprobs_reason_and_stats():
    async def main() -> None:
        async with served() as s:
            await load(s.client, "toy", TOY)
            sampling = SamplingParams(temperature=0, num_logprobs=2)
            outputs = [
                o async for o in outputs_of(s.client, toy_request("r", [1, 2, 3], 2, sampling=sampling))
            ]
            assert [output.finish_reason for output in outputs] == [None, "length"]
            assert all(len(lp.top) == 2 for output in outputs for lp in output.logprobs or [])
            assert outputs[-1].stats is not None
            assert (outputs[-1].stats.prompt_tokens, outputs[-1].stats.generated_tokens) == (3, 2)

    asyncio.run(main())


def test_errors_come_back_as_text():
    async def main() -> None:
        async with served() as s:
            with pytest.raises(ModelLoadError, match="nonsense: not a toy"):
                await load(s.client, "toy", Path("nonsense"))
            with pytest.raises(ModelLoadError, match=r"13: KeyError\('bug'\)"):
                await load(s.client, "toy", Path("13"))
            await load(s.client, "toy", TOY)
            with pytest.raises(ModelLoadError, match="already loaded"):
                await load(s.client, "toy", TOY)
            (output,) = [output async for output in outputs_of(s.client, toy_request("r", []))]
            assert (output.finish_reason, output.error) == ("error", "the prompt is empty")

    asyncio.run(main())


def test_a_path_need_not_be_text():
    async def main() -> None:
        async with served() as s:
            with pytest.raises(ModelLoadError, match=r"\\xff.gguf: not a toy"):
                await load(s.client, "toy", Path("\udcff.gguf"))

    asyncio.run(main())


async def first_outputs(client: EngineClient, request: Request, count: int) -> list[int]:
    """Takes `count` outputs and leaves."""
    tokens: list[int] = []
    async with aclosing(outputs_of(client, request)) as outputs:
        async for output in outputs:
            tokens += output.tokens
            if (count := count - 1) == 0:
                break
    return tokens


async def until(client: EngineClient, condition: Callable[[ModelStats], object]) -> None:
    """Asks again and again: nobody is told when a request has left the engine."""
    while not all(condition(model) for model in (await client.call(GetStats())).models):  # noqa: ASYNC110
        await asyncio.sleep(0.001)


def is_idle(model: ModelStats) -> bool:
    return model.num_running + model.num_waiting + model.used_kv_bytes == 0


def test_leaving_a_stream_cancels_it():
    async def main() -> None:
        async with served() as s:
            await load(s.client, "toy", TOY)
            tokens = await first_outputs(s.client, toy_request("r", [1], None), 3)
            assert tokens == expected_tokens([1], 3)
            await until(s.client, is_idle)
            assert len(s.backend.models[0].steps) < MAX_TOKENS / 2
            assert await generate(s.client, toy_request("next", [2], 3)) == expected_tokens([2], 3)

    asyncio.run(main())


def test_cancelling_the_task_cancels_the_request():
    async def main() -> None:
        async with served() as s:
            await load(s.client, "toy", TOY)
            task = asyncio.create_task(generate(s.client, toy_request("r", [1], None)))
            await until(s.client, lambda model: model.num_running)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await until(s.client, is_idle)
            assert len(s.backend.models[0].steps) < MAX_TOKENS / 2

    asyncio.run(main())


def test_a_slow_load_does_not_stop_running_requests():
    async def main() -> None:
        async with served() as s:
            await load(s.client, "toy", TOY)
            loading = asyncio.create_task(load(s.client, "slow", Path("9")))
            assert await generate(s.client, toy_request("r", [1], 50)) == expected_tokens([1], 50)
            assert not loading.done()
            s.backend.gate.set()
            assert (await loading).architecture == "toy"

    asyncio.run(main())


def test_an_unload_does_not_overtake_its_load():
    async def main() -> None:
        async with served() as s:
            loading = asyncio.create_task(load(s.client, "slow", Path("9")))
            await asyncio.sleep(0)
            unload = asyncio.create_task(s.client.call(Unload("slow")))
            await asyncio.sleep(0.01)
            s.backend.gate.set()
            await asyncio.gather(loading, unload)
            assert (await s.client.call(GetStats())).models == []

    asyncio.run(main())


def test_unload_fails_what_still_runs():
    async def main() -> None:
        async with served() as s:
            await load(s.client, "toy", TOY)
            outputs = []
            async for output in outputs_of(s.client, toy_request("r", [1], None)):
                outputs.append(output)
                if len(outputs) == 2:
                    await s.client.call(Unload("toy"))
            assert (outputs[-1].finish_reason, outputs[-1].error) == ("error", "the model was unloaded")

    asyncio.run(main())


def test_a_client_that_goes_away_takes_its_requests_along():
    async def main() -> None:
        async with served() as s:  # which checks that nothing is left
            await load(s.client, "toy", TOY)
            stream = outputs_of(s.client, toy_request("r", [1], None))
            await anext(stream)
            await s.client.close()
            with pytest.raises(WorkerDied):
                async for _ in stream:
                    pass
            with pytest.raises(WorkerDied):
                await s.client.call(GetStats())

    asyncio.run(main())


async def until_committed(s: Served, wanted: Callable[[int], bool]) -> None:
    """Watched from outside: a question would be work."""
    while not wanted(s.engine.stats().models[0].committed_kv_bytes):  # noqa: ASYNC110
        await asyncio.sleep(0.001)


def test_an_idle_worker_gives_all_kv_memory_back(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("puna.worker.engine.server.TRIM_S", 0.01)

    async def main() -> None:
        async with served(kv_idle_s=0.05) as s:
            await load(s.client, "toy", TOY)
            await generate(s.client, toy_request("r", [1] * 40, 20))
            await until_committed(s, lambda num_bytes: num_bytes == 0)
            assert await generate(s.client, toy_request("r", [1] * 40, 20)) == expected_tokens([1] * 40, 20)

    asyncio.run(main())


def test_what_is_cached_stays_for_a_while_though_questions_are_asked(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("puna.worker.engine.server.TRIM_S", 0.01)

    async def main() -> None:
        async with served(kv_idle_s=3600) as s:
            await load(s.client, "toy", TOY)
            await generate(s.client, toy_request("r", [1] * 40, 20))
            await until_committed(s, lambda num_bytes: 0 < num_bytes <= 4 * BLOCK_BYTES)
            for _ in range(3):
                await s.client.call(GetStats())
            assert (await s.client.call(GetStats())).models[0].cached_kv_bytes == 4 * BLOCK_BYTES

    asyncio.run(main())


def test_the_share_of_a_model_comes_with_the_load():
    async def main() -> None:
        async with served() as s:
            await load(s.client, "toy", TOY, 2.5)
            assert s.engine._models["toy"].share == 2.5

    asyncio.run(main())


def test_stats_say_who_runs_and_what_it_holds():
    async def main() -> None:
        async with served(max_running=1) as s:
            await load(s.client, "toy", TOY)
            streams = [outputs_of(s.client, toy_request(name, [1] * 20, None)) for name in "ab"]
            tasks = [asyncio.create_task(anext(stream)) for stream in streams]
            await tasks[0]
            stats = await s.client.call(GetStats())
            assert stats.kv_limit_bytes == NUM_BLOCKS * BLOCK_BYTES
            assert (stats.models[0].num_running, stats.models[0].num_waiting) == (1, 1)
            assert stats.models[0].used_kv_bytes >= 2 * BLOCK_BYTES
            for task, stream in zip(tasks, streams, strict=True):
                await asyncio.wait_for(task, 60)
                await stream.aclose()

    asyncio.run(main())


def test_the_timeline_is_there_for_the_asking():
    async def main() -> None:
        async with served() as s:
            await load(s.client, "toy", TOY)
            trace = await s.client.call(GetTrace())
            assert (trace.steps, trace.events) == ([], [])
            assert trace.begin_ns < trace.end_ns

    asyncio.run(main())


def test_a_model_that_slept_answers_as_before():
    async def main() -> None:
        async with served() as s:
            info = await load(s.client, "toy", TOY)
            assert await generate(s.client, toy_request("a", [1], 5)) == expected_tokens([1], 5)
            await s.client.call(Sleep("toy"))
            assert [model.is_asleep for model in (await s.client.call(GetStats())).models] == [True]
            assert await s.client.call(Wake("toy")) == info
            assert await generate(s.client, toy_request("b", [1], 5)) == expected_tokens([1], 5)
            await s.client.call(Sleep("toy"))
            await s.client.call(Unload("toy"))
            assert (await s.client.call(GetStats())).models == []
            with pytest.raises(ModelLoadError, match="not loaded"):
                await s.client.call(Wake("toy"))

    asyncio.run(main())


def test_waking_does_not_wait_for_a_load():
    async def main() -> None:
        async with served() as s:
            await load(s.client, "toy", TOY)
            loading = asyncio.create_task(load(s.client, "slow", Path("9")))
            await s.client.call(Sleep("toy"))
            await s.client.call(Wake("toy"))
            assert not loading.done()
            s.backend.gate.set()
            await loading

    asyncio.run(main())


def test_who_holds_the_memory_comes_back_with_the_refusal(monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: object) -> None:
        raise ModelDoesNotFit("who holds what")

    async def main() -> None:
        async with served() as s:
            await load(s.client, "toy", TOY)
            await s.client.call(Sleep("toy"))
            monkeypatch.setattr(s.engine._residents, "wake", refuse)
            for bring in (load(s.client, "other", TOY), s.client.call(Wake("toy"))):
                with pytest.raises(ModelDoesNotFit, match="who holds what"):
                    await bring

    asyncio.run(main())


def test_a_request_that_nobody_reads_is_paused_and_goes_on_where_it_was():
    async def main() -> None:
        async with served() as s:
            await load(s.client, "toy", TOY)
            async with s.client.stream(toy_request("slow", [1], 1000, num_draft=0)) as outputs:
                tokens = list((await anext(outputs)).tokens)
                while not outputs.is_paused:  # noqa: ASYNC110
                    await asyncio.sleep(0.001)
                await s.client.call(GetStats())
                num_steps = len(s.backend.models[0].steps)
                assert await generate(s.client, toy_request("other", [2], 50)) == expected_tokens([2], 50)
                assert outputs.outputs.qsize() < 200
                assert len(s.backend.models[0].steps) <= num_steps + 50 + 1
                async for output in outputs:
                    tokens += output.tokens
            assert tokens == expected_tokens([1], 1000)

    asyncio.run(main())
