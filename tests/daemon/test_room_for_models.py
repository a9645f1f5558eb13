"""Idle models sleep, wake, and make way for others; nobody does so in vain. Workers are fakes."""

from __future__ import annotations

import asyncio

import pytest

from puna.backends.base import ModelLoadError
from puna.registry import ModelName
from puna.worker.engine.messages import GetStats
from tests.daemon.fake_worker import INFO
from tests.daemon.harness import Daemon, run, until

pytestmark = pytest.mark.native


def test_model_whose_time_is_over_sleeps_and_keeps_what_knows_text(daemon, weights):
    daemon.add("m", weights[0])

    async def main():
        async with daemon.runtime.resident("m", keep_alive=0.001) as first:
            pass
        await until(lambda: daemon.worker.asleep)
        assert (await daemon.names(), daemon.worker.models) == ([], {})
        assert await daemon.say("m", "awake again") == "awake again"
        async with daemon.runtime.resident("m") as second:
            assert second.text is first.text
        assert await daemon.names() == ["m:latest"]

    run(main, daemon)


def test_sleeping_model_can_be_unloaded_also_when_it_was_deleted(daemon, weights):
    daemon.add("m", weights[0])

    async def main():
        for delete in (False, True):
            async with daemon.runtime.resident("m", keep_alive=0.001):
                pass
            await until(lambda: daemon.worker.asleep)
            if delete:
                daemon.store.delete(ModelName.parse("m"))
            await daemon.runtime.unload("m")
            assert daemon.worker.asleep == {}

    run(main, daemon)


def test_who_sleeps_goes_when_its_file_does(daemon, weights):
    async def main():
        daemon.add("m", weights[0])
        async with daemon.runtime.resident("m", keep_alive=0.001):
            pass
        await until(lambda: daemon.worker.asleep)
        await daemon.runtime.delete(ModelName.parse("m"))
        assert daemon.worker.asleep == {}
        daemon.add("m", weights[0])
        async with daemon.runtime.resident("m", keep_alive=0.001):
            pass
        await until(lambda: daemon.worker.asleep)
        daemon.add("m", weights[1])  # other weights under the same name
        await daemon.say("m", "x")
        assert daemon.worker.asleep == {}
        async with daemon.runtime.resident("m", keep_alive=0.001):
            daemon.store.delete(ModelName.parse("m"))
        await until(lambda: not daemon.worker.models)
        assert daemon.worker.asleep == {}

    run(main, daemon)


def test_model_that_slept_while_the_worker_died_works(daemon, weights):
    daemon.add("m", weights[0])

    async def main():
        async with daemon.runtime.resident("m", keep_alive=0.001):
            pass
        await until(lambda: daemon.worker.asleep)
        daemon.worker.die()
        assert await daemon.say("m", "again") == "again"
        assert len(daemon.workers) == 2

    run(main, daemon)


def test_idle_models_fall_asleep_for_one_that_does_not_fit(daemon, weights):
    daemon.memory_bytes = 2 * INFO.weight_bytes
    for name, data in zip("abc", (*weights, weights[0] + b"x"), strict=True):
        daemon.add(name, data)

    async def main():
        for name in "abac":
            await daemon.say(name, "x")
        assert sorted(await daemon.names()) == ["a:latest", "c:latest"]
        assert len(daemon.worker.asleep) == 1
        await daemon.say("b", "x")
        assert sorted(await daemon.names()) == ["b:latest", "c:latest"]

    run(main, daemon)


def test_model_that_does_not_fit_is_refused_with_who_holds_the_rest(daemon, weights):
    daemon.memory_bytes = INFO.weight_bytes
    daemon.add("busy", weights[0])
    daemon.add("large", weights[1])

    async def main():
        async with daemon.runtime.resident("busy"):
            with pytest.raises(ModelLoadError) as refusal:
                await daemon.say("large", "x")
            assert await daemon.names() == ["busy:latest"]
        text = str(refusal.value)
        assert text.startswith("large:latest needs 1000 B (weights ")
        assert text.endswith(
            "the memory limit is 1000 B: busy:latest holds 1000 B of weights and 64 B of KV in use"
        )
        assert await daemon.say("large", "now it fits") == "now it fits"

    run(main, daemon)


def test_nobody_is_put_to_sleep_in_vain(daemon, weights):
    daemon.memory_bytes = 3 * INFO.weight_bytes
    for name, data in zip(("busy", "idle", "large"), (*weights, weights[0] + b"x"), strict=True):
        daemon.add(name, data)

    async def main():
        await daemon.say("idle", "x")
        async with daemon.runtime.resident("busy"):
            daemon.worker.needs[daemon.store.find(ModelName.parse("large")).weights_id] = 2300
            with pytest.raises(
                ModelLoadError, match=r"the memory limit is 2\.93 KiB: idle:latest holds 1000 B"
            ):
                await daemon.say("large", "x")
            assert sorted(await daemon.names()) == ["busy:latest", "idle:latest"]
        await daemon.say("large", "x")
        assert await daemon.names() == ["large:latest"]

    run(main, daemon)


def test_draft_model_that_does_not_fit_is_gone_without(daemon, weights):
    daemon.memory_bytes = INFO.weight_bytes
    daemon.add("large", weights[0])
    daemon.add("small", weights[1])

    async def main():
        async with daemon.runtime.resident("large", draft_model="small") as model:
            assert await daemon.names() == ["large:latest"]
            assert model.draft_model_id is None

    run(main, daemon)


def test_idle_models_fall_asleep_when_the_limit_is_lowered_below_their_weights(daemon, weights):
    for name, data in zip(("busy", "first", "second"), (*weights, weights[0] + b"x"), strict=True):
        daemon.add(name, data)

    async def main():
        for name in ("first", "second"):
            await daemon.say(name, "x")
        async with daemon.runtime.resident("busy"):
            size = INFO.weight_bytes
            assert await daemon.runtime.set_limits(None, 2 * size) == 0
            assert sorted(await daemon.names()) == ["busy:latest", "second:latest"]
            assert await daemon.runtime.set_limits(size // 2, None) == 0
            assert await daemon.runtime.set_limits(None, size // 2) == size - size // 2
            assert await daemon.names() == ["busy:latest"]

    run(main, daemon)


def test_what_goes_in_a_moment_is_no_excess(daemon):
    async def main():
        await daemon.runtime.worker.call(GetStats())
        daemon.worker.kv_excess_bytes = 100
        asyncio.get_running_loop().call_later(0.02, setattr, daemon.worker, "kv_excess_bytes", 0)
        assert await daemon.runtime.set_limits(1000, None) == 0

    run(main, daemon)


def test_nobody_falls_asleep_where_it_is_the_limit_of_kv_that_is_exceeded(daemon, weights):
    daemon.add("idle", weights[0])

    async def main():
        await daemon.say("idle", "x")
        size = INFO.weight_bytes
        daemon.worker.kv_limit_bytes, daemon.worker.kv_excess_bytes = size, 100
        assert await daemon.runtime.set_limits(size, 2 * size) == 100
        assert await daemon.names() == ["idle:latest"]
        assert await daemon.runtime.set_limits(None, 2 * size - 1) == 100
        assert await daemon.names() == []

    run(main, daemon)


@pytest.mark.parametrize(
    ("max_tokens", "kv_limit", "sleepers"),
    [(0, 1 << 60, 0), (1000, 1 << 60, 1), (None, 1 << 60, 2), (None, 500, 0), (None, 5000, 1)],
)
def test_idle_models_fall_asleep_for_the_kv_that_a_request_will_need(
    daemon, weights, max_tokens, kv_limit, sleepers
):
    """A block of 16 tokens takes 64 bytes, a context of 2048 tokens 8192."""
    size = INFO.weight_bytes
    daemon.memory_bytes = 3 * size + 4000
    for name, data in zip(("first", "second", "busy"), (*weights, weights[0] + b"x"), strict=True):
        daemon.add(name, data)

    async def main():
        for name in ("first", "second"):
            async with daemon.runtime.resident(name):
                pass
        daemon.worker.kv_limit_bytes = kv_limit
        async with daemon.runtime.resident("busy") as model:
            await daemon.generate(model, prompt=[1] * 64, max_tokens=max_tokens)
        assert len(daemon.worker.asleep) == sleepers

    run(main, daemon)


@pytest.mark.parametrize(
    ("num_bytes", "is_granted", "sleepers"), [(400, True, 0), (401, True, 1), (900, True, 1), (901, False, 0)]
)
def test_idle_models_fall_asleep_for_a_lease_but_not_in_vain(
    daemon, weights, num_bytes, is_granted, sleepers
):
    """Of the 1000 bytes that can be leased, 64 are in use by the busy model."""
    daemon.memory_bytes = 2 * INFO.weight_bytes + 400
    daemon.add("idle", weights[0])
    daemon.add("busy", weights[1])

    async def main():
        await daemon.say("idle", "x")
        async with daemon.runtime.resident("busy"):
            daemon.worker.kv_limit_bytes = 900 + 64
            assert (await daemon.runtime.lease(num_bytes)).granted == is_granted
            assert len(daemon.worker.asleep) == sleepers
            assert daemon.worker.leased_bytes == num_bytes * is_granted
            assert (await daemon.runtime.lease(1000)).granted is False
            assert "busy:latest" in await daemon.names()

    run(main, daemon)


def test_a_lease_waits_for_no_model_where_memory_is_reserved_for_good(tmp_path, weights):
    daemon = Daemon(tmp_path / "models", elastic=False)
    daemon.memory_bytes = INFO.weight_bytes + 400
    daemon.add("idle", weights[0])

    async def main():
        await daemon.say("idle", "x")
        assert (await daemon.runtime.lease(500)).granted is False
        assert await daemon.names() == ["idle:latest"]

    run(main, daemon)
