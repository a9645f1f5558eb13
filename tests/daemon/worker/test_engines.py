"""Which engine gets a model, and what a server takes is counted. Workers are fakes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from puna.backends.base import CannotSee, ModelInfo, ModelLoadError, ModelSource, UnsupportedModelFile
from puna.config.settings import Settings
from puna.daemon.worker.engines import Engines, LoadWishes
from puna.daemon.worker.memory import WorkersMemory
from puna.daemon.worker.supervisor import WorkerSupervisor
from puna.engine.memory.load_errors import ModelDoesNotFit
from puna.engine.request import Request
from puna.worker.call_client import WorkerDied
from tests.daemon.fake_worker import LEASABLE, SERVED, FakeWorker, Servers, Workshop
from tests.daemon.harness import until

pytestmark = pytest.mark.unit

PROGRAM = Path("/bin/true")
NOWHERE = Path("/nowhere")
MISSING = "PUNA_LLAMA_SERVER: /nowhere is no program"


class Natives(Workshop):
    """Their engine does not run "foreign"."""

    async def spawn(self) -> FakeWorker:
        worker = await super().spawn()
        worker.refusal = UnsupportedModelFile
        return worker


class Both:
    def __init__(self, **settings: Any) -> None:
        self.natives, self.servers, self.lost = Natives(start_s=0.0), Servers(), []
        self.natives.unloadable.add("foreign")
        memory = WorkersMemory()
        native = WorkerSupervisor(self.natives.spawn, memory, self._lose)
        given = Settings(models=Path("/nowhere"), **{"llama_server": PROGRAM, **settings})
        self.engines = Engines(given, native, memory, self._lose, self.servers.spawn_with)

    def _lose(self, model_id: str, _: Exception) -> None:
        self.lost.append(model_id)

    async def load(self, model_id: str, wishes: LoadWishes = LoadWishes()) -> ModelInfo:  # noqa: B008
        source = ModelSource(f"/models/{model_id}", ())
        return await self.engines.load(model_id, source, 1.0, 0, model_id, wishes)

    async def tokens(self, model_id: str) -> list[int]:
        request = Request(id=model_id, model_id=model_id, prompt=[1, 2])
        async with self.engines.stream(request) as outputs:
            return [token async for output in outputs for token in output.tokens]


def test_a_server_gets_what_the_native_engine_does_not_run():
    async def main():
        both = Both()
        assert (await both.load("ours")).engine == "native"
        assert (await both.load("foreign")).engine == "llamacpp"
        assert await both.tokens("ours") == await both.tokens("foreign") == [1, 2]
        assert [list(worker.models) for worker in both.servers.workers] == [["foreign"]]
        assert [status.name for status in both.engines.processes] == ["worker", "llama.cpp"]
        await both.engines.close()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("settings", "model", "expected"),
    [
        ({"engine": "llamacpp"}, "ours", "llamacpp"),
        ({"prefers_native": False}, "ours", "llamacpp"),
        ({"prefers_native": False, "llama_server": NOWHERE}, "ours", "native"),
        ({"prefers_native": False, "engine": "native"}, "ours", "native"),
        ({"engine": "native"}, "foreign", "foreign is broken"),
        ({"llama_server": NOWHERE}, "foreign", f"foreign is broken; {MISSING}"),
        ({"llama_server": NOWHERE, "engine": "llamacpp"}, "ours", MISSING),
    ],
)
def test_the_settings_choose(settings: dict[str, Any], model: str, expected: str):
    async def main():
        both = Both(**settings)
        try:
            found: str = (await both.load(model)).engine
        except ModelLoadError as error:
            found = str(error)
        assert found == expected
        await both.engines.close()

    asyncio.run(main())


def test_what_neither_runs_says_why_twice():
    async def main():
        both = Both()
        both.servers.unloadable.add("foreign")
        with pytest.raises(UnsupportedModelFile, match="foreign is broken; foreign is broken"):
            await both.load("foreign")
        assert both.servers.worker.terminated
        assert len(both.engines.processes) == 1
        await both.engines.close()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("llama_server", "refusal", "expected"),
    [
        (NOWHERE, ModelLoadError, CannotSee),
        (PROGRAM, CannotSee, CannotSee),
        (PROGRAM, ModelLoadError, ModelLoadError),
        (PROGRAM, ModelDoesNotFit, ModelDoesNotFit),
    ],
)
def test_only_what_cannot_see_is_told_so(
    llama_server: Path, refusal: type[ModelLoadError], expected: type[ModelLoadError]
):
    async def main():
        both = Both(llama_server=llama_server)
        both.servers.refusal = refusal
        both.servers.unloadable.add("ours")
        with pytest.raises(ModelLoadError) as raised:
            await both.load("ours", LoadWishes(sees=True))
        assert raised.type is expected
        await both.engines.close()

    asyncio.run(main())


def test_what_a_server_takes_is_leased_until_it_is_unloaded():
    async def main():
        both = Both()
        await both.load("foreign")
        native = both.natives.worker
        assert (native.leased_bytes, native.leased_weight_bytes) == (300, 800)
        assert not await both.engines.sleep("foreign")  # it would keep its memory
        await both.engines.unload("foreign")
        assert (native.leased_bytes, native.leased_weight_bytes) == (0, 0)
        assert both.servers.worker.terminated
        await both.engines.close()

    asyncio.run(main())


def test_a_server_that_does_not_fit_is_ended():
    async def main():
        both = Both()
        both.servers.info = replace(SERVED, scratch_bytes=LEASABLE + 1)
        with pytest.raises(ModelDoesNotFit, match="foreign takes"):
            await both.load("foreign")
        assert both.servers.worker.terminated
        assert both.natives.worker.leased_bytes == 0
        await both.engines.close()

    asyncio.run(main())


def test_a_dead_server_harms_nobody_else_and_is_followed_by_another():
    async def main():
        both = Both()
        await both.load("ours")
        await both.load("foreign")
        request = Request(id="r", model_id="foreign", prompt=[1] * 100)
        async with both.engines.stream(request) as outputs:
            await anext(outputs)
            both.servers.worker.die()
            with pytest.raises(WorkerDied):
                _ = [output async for output in outputs]
        assert await both.tokens("ours") == [1, 2]
        assert await both.tokens("foreign") == [1, 2]
        assert (len(both.natives.workers), len(both.servers.workers)) == (1, 2)
        assert both.natives.worker.leased_bytes == 300  # once
        await both.engines.close()

    asyncio.run(main())


def test_a_server_that_dies_of_its_model_is_given_up():
    async def main():
        both = Both()
        await both.load("foreign")
        both.servers.deadly.add("foreign")
        both.servers.worker.die()
        await until(lambda: both.lost == ["foreign"])
        await both.engines.close()

    asyncio.run(main())


def test_the_first_request_says_how_a_server_is_started():
    async def main():
        both = Both(engine="llamacpp", max_running=2, llama_server_args=("--mlock",), kv_type="q8_0")
        await both.load("a", LoadWishes(num_ctx=512, num_gpu=7))
        await both.load("b")
        first, second = both.servers.settings
        assert (first.context_length, first.num_gpu_layers, first.num_slots) == (512, 7, 2)
        assert (first.program, first.arguments, first.kv_type) == (str(PROGRAM), ["--mlock"], "q8_0")
        assert (second.context_length, second.num_gpu_layers) == (4096, None)
        await both.engines.close()

    asyncio.run(main())
