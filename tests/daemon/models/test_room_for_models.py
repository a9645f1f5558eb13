"""Idle models sleep and wake; the worker knows whom it may put to sleep. Workers are fakes."""

from __future__ import annotations

import asyncio

import pytest

from puna.registry import ModelName
from puna.worker.engine.messages import GetStats
from tests.daemon.fake_worker import INFO
from tests.daemon.harness import run, until

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


def test_draft_model_that_does_not_fit_is_gone_without(daemon, weights):
    daemon.memory_bytes = INFO.weight_bytes
    daemon.add("large", weights[0])
    daemon.add("small", weights[1])

    async def main():
        async with daemon.runtime.resident("large", draft_model="small") as model:
            assert await daemon.names() == ["large:latest"]
            assert model.draft_model_id is None

    run(main, daemon)


def test_what_goes_in_a_moment_is_no_excess(daemon):
    async def main():
        await daemon.runtime.worker.call(GetStats())
        daemon.worker.kv_excess_bytes = 100
        asyncio.get_running_loop().call_later(0.02, setattr, daemon.worker, "kv_excess_bytes", 0)
        assert await daemon.runtime.set_limits(1000, None) == 0

    run(main, daemon)


def test_the_worker_is_told_who_is_in_use_also_when_it_is_another_one(daemon, weights):
    daemon.add("m", weights[0])

    async def main():
        async with daemon.runtime.resident("m") as model:
            assert list(daemon.worker.held.values()) == [True]
        assert list(daemon.worker.held.values()) == [False]
        async with daemon.runtime.resident("m"), daemon.runtime.resident("m"):
            assert list(daemon.worker.held.values()) == [True]
        assert list(daemon.worker.held.values()) == [False]
        daemon.worker.die()
        await until(lambda: len(daemon.workers) == 2 and daemon.worker.models)
        await daemon.runtime.worker.call(GetStats())
        assert list(daemon.worker.held.values()) == [False]
        assert await daemon.say("m", "again") == "again"
        assert model.info == INFO

    run(main, daemon)
