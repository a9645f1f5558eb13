"""Models in servers of llama.cpp's: which are ended, and started again for what a request wishes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from puna.backends.base import ModelLoadError
from puna.engine.memory.load_errors import ModelDoesNotFit
from tests.daemon.fake_worker import LEASABLE, SERVED
from tests.daemon.harness import Daemon, run

pytestmark = pytest.mark.native


@pytest.fixture
def served(tmp_path, weights):
    """A daemon whose models are all in servers, each of which takes most of the memory."""
    return new_daemon(tmp_path, weights, engine="llamacpp")


def new_daemon(directory, weights, **settings):
    daemon = Daemon(directory / "models", llama_server=Path("/bin/true"), **settings)
    daemon.servers.info = replace(SERVED, scratch_bytes=LEASABLE * 2 // 3, most_context=8192)
    daemon.add("a", weights[0])
    daemon.add("b", weights[1])
    return daemon


def test_an_idle_server_makes_room_for_another_and_a_busy_one_does_not(served):
    async def main():
        assert await served.say("a", "x") == "x"
        assert await served.say("b", "x") == "x"
        assert await served.names() == ["b:latest"]
        async with served.runtime.resident("b"):
            with pytest.raises(ModelDoesNotFit):
                await served.say("a", "x")
        assert [status.engine for status in await served.runtime.loaded()] == ["llamacpp"]

    run(main, served)


def test_a_server_is_started_again_for_a_longer_context(served):
    async def main():
        for num_ctx, num_started in ((None, 1), (2048, 1), (5000, 2), (1 << 20, 3), (1 << 20, 3)):
            async with served.runtime.resident("a", num_ctx=num_ctx):
                assert len(served.servers.workers) == num_started
        assert [settings.context_length for settings in served.servers.settings] == [4096, 5000, 1 << 20]

    run(main, served)


def test_one_that_sees_goes_on_seeing_with_a_longer_context_and_keeps_the_longer_one(tmp_path, weights):
    daemon = new_daemon(tmp_path, weights)

    async def main():
        for wishes in ({"sees": True}, {"num_ctx": 5000}, {"sees": True}, {"num_ctx": 8000, "num_gpu": 1}):
            async with daemon.runtime.resident("a", **wishes) as model:
                assert model.info.engine == "llamacpp"
                assert daemon.servers.worker.seeing
        assert [settings.context_length for settings in daemon.servers.settings] == [4096, 5000, 8000]
        assert daemon.servers.settings[-1].num_gpu_layers == 1

    run(main, daemon)


def test_one_that_begins_to_see_keeps_its_longer_context(served):
    async def main():
        for wishes in ({"num_ctx": 5000, "num_gpu": 3}, {"sees": True}):
            async with served.runtime.resident("a", **wishes):
                pass
        assert [settings.context_length for settings in served.servers.settings] == [5000, 5000]
        assert [settings.num_gpu_layers for settings in served.servers.settings] == [3, 3]

    run(main, served)


def test_a_longer_context_is_not_forgotten_while_a_shorter_one_is_loaded(served):
    async def use(num_ctx: int) -> None:
        async with served.runtime.resident("a", num_ctx=num_ctx) as model:
            assert model.context_length == num_ctx

    async def main():
        await asyncio.gather(use(512), use(1024))

    run(main, served)


def test_a_projector_that_fails_costs_a_model_its_place_only_once(tmp_path, weights):
    daemon = new_daemon(tmp_path, weights)

    async def see() -> None:
        with pytest.raises(ModelLoadError, match="a:latest is broken"):
            async with daemon.runtime.resident("a", sees=True):
                pass

    async def main():
        assert await daemon.say("a", "x") == "x"
        daemon.servers.unloadable |= set(daemon.worker.models)
        await see()
        assert await daemon.names() == []
        assert await daemon.say("a", "x") == "x"
        for _ in range(3):
            await see()
            assert await daemon.names() == ["a:latest"]
        assert len(daemon.servers.workers) == 1
        daemon.servers.unloadable.clear()
        await daemon.runtime.unload("a")
        async with daemon.runtime.resident("a", sees=True) as model:
            assert model.info.engine == "llamacpp"

    run(main, daemon)
