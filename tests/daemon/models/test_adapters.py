"""Names with the same weights and other LoRA adapters share one model in memory."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from puna.backends.base import ModelLoadError
from puna.engine.memory.load_errors import ModelDoesNotFit
from puna.registry import ModelName
from tests.daemon.fake_worker import ADAPTER_BYTES, INFO
from tests.daemon.harness import Daemon, run, until

pytestmark = pytest.mark.unit


@pytest.fixture
def daemon(tmp_path: Path, weights: list[bytes]) -> Daemon:
    daemon = Daemon(tmp_path / "models")
    daemon.add("base", weights[0])
    daemon.add_adapted("first", "base", b"LoRA 1")
    daemon.add_adapted("second", "base", b"LoRA 2")
    daemon.add_adapted("unfit", "base", b"not one")
    return daemon


def test_each_name_has_its_adapter_and_all_have_one_model(daemon: Daemon) -> None:
    async def main() -> None:
        async with (
            daemon.runtime.resident("first") as first,
            daemon.runtime.resident("second") as second,
            daemon.runtime.resident("first") as again,
        ):
            assert first.adapter == again.adapter != second.adapter != ""
            assert {adapter for _, adapter in daemon.workers[0].adapters} == {first.adapter, second.adapter}
            assert sorted(await daemon.names()) == ["first:latest", "second:latest"]
        async with daemon.runtime.resident("base") as base:
            assert base.adapter == ""
        assert sorted(await daemon.names()) == ["base:latest", "first:latest", "second:latest"]
        sizes = {status.name: status.size for status in await daemon.runtime.loaded()}
        assert (
            sizes["first:latest"] == sizes["base:latest"] + ADAPTER_BYTES == INFO.weight_bytes + ADAPTER_BYTES
        )
        assert len(daemon.workers[0].models) == 1

    run(main, daemon)


def test_an_adapter_goes_when_its_time_has_come_and_its_model_stays(daemon: Daemon) -> None:
    async def main() -> None:
        async with daemon.runtime.resident("base"):
            async with daemon.runtime.resident("first", keep_alive=0.0):
                pass
            await until(lambda: not daemon.workers[0].adapters)
            assert await daemon.names() == ["base:latest"]
            async with daemon.runtime.resident("first") as first:
                assert {adapter for _, adapter in daemon.workers[0].adapters} == {first.adapter}

    run(main, daemon)


def test_an_adapter_that_does_not_fit_fails_its_own_name_alone(daemon: Daemon) -> None:
    async def main() -> None:
        with pytest.raises(ModelLoadError, match="unfit:latest: the file is no LoRA adapter"):
            async with daemon.runtime.resident("unfit"):
                pass
        assert await daemon.say("first", "hi") == "hi"
        assert await daemon.names() == ["first:latest"]

    run(main, daemon)


def test_a_new_worker_has_the_adapters_of_the_last(daemon: Daemon) -> None:
    async def main() -> None:
        async with daemon.runtime.resident("first"):
            before = daemon.workers[0].adapters
            daemon.workers[0].die()
            await until(lambda: len(daemon.workers) == 2 and daemon.workers[1].adapters)
            assert daemon.workers[1].adapters == before
            await asyncio.sleep(0)

    run(main, daemon)


def test_adapters_that_are_deleted_leave_memory(daemon: Daemon) -> None:
    async def main() -> None:
        assert await daemon.say("first", "hi") == "hi"
        assert await daemon.say("second", "hi") == "hi"
        second = daemon.store.find(ModelName.parse("second")).adapter_path
        await daemon.runtime.delete(ModelName.parse("first"))
        await until(lambda: len(daemon.workers[0].adapters) == 1)
        assert second is not None
        assert {adapter for _, adapter in daemon.workers[0].adapters} == {second.name}

    run(main, daemon)


def test_idle_adapters_make_room_for_others_of_their_model(daemon: Daemon) -> None:
    daemon.memory_bytes = INFO.weight_bytes + ADAPTER_BYTES

    async def main() -> None:
        assert await daemon.say("first", "hi") == "hi"
        async with daemon.runtime.resident("second") as second:
            assert {adapter for _, adapter in daemon.workers[0].adapters} == {second.adapter}
            with pytest.raises(ModelDoesNotFit):
                await daemon.say("first", "hi")
        assert await daemon.say("first", "hi") == "hi"
        assert len(daemon.workers[0].adapters) == 1

    run(main, daemon)


def test_stopping_a_name_leaves_what_others_use(daemon: Daemon) -> None:
    async def main() -> None:
        for name in ("base", "first", "second"):
            assert await daemon.say(name, "hi") == "hi"
        await daemon.runtime.unload("first")
        assert sorted(await daemon.names()) == ["base:latest", "second:latest"]
        await daemon.runtime.unload("base")
        assert await daemon.names() == ["second:latest"]
        assert len(daemon.workers[0].models) == len(daemon.workers[0].adapters) == 1
        await daemon.runtime.unload("second")
        assert await daemon.names() == []
        assert not daemon.workers[0].models

    run(main, daemon)


def test_stopping_a_name_in_use_unloads_it_behind_its_last_request(daemon: Daemon) -> None:
    async def main() -> None:
        assert await daemon.say("base", "hi") == "hi"
        async with daemon.runtime.resident("first"):
            await daemon.runtime.unload("first")
            assert sorted(await daemon.names()) == ["base:latest", "first:latest"]
        await until(lambda: not daemon.workers[0].adapters)
        assert await daemon.names() == ["base:latest"]

    run(main, daemon)
