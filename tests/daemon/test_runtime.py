"""What the HTTP faces see of the daemon. Workers are fakes, the store is real."""

from __future__ import annotations

import asyncio
import math
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from puna.backends.base import ModelLoadError
from puna.daemon.runtime import ResidentModel, Runtime
from puna.engine.request import Request, StepOutput
from puna.registry import InvalidModelName, Layer, ModelName, ModelNotFound, UnsupportedModel
from puna.registry.create import create_from_gguf
from puna.registry.manifest import LAYER_TYPE
from puna.settings import Settings, SettingsError
from puna.tokenizer import Tokenizer
from puna.worker.call_client import WorkerDied
from puna.worker.engine.messages import GetStats, TrimKv
from tests.daemon.fake_sessions import SAVED_AT, write_key
from tests.daemon.fake_text import FakeTextPool
from tests.daemon.fake_worker import INFO, Workshop
from tests.descriptions import TINY_WEIGHTS
from tests.tiny import TINY, write_tiny

pytestmark = pytest.mark.native


@pytest.fixture(scope="module")
def weights(tmp_path_factory) -> list[bytes]:
    directory = tmp_path_factory.mktemp("gguf")
    return [write_tiny(directory / f"{seed}.gguf", TINY["llama"], seed=seed).read_bytes() for seed in (0, 1)]


class Daemon(Workshop):
    """A runtime whose worker is fake."""

    def __init__(self, root: Path, **settings) -> None:
        super().__init__(start_s=0.0)
        self.text = FakeTextPool()
        self.runtime = Runtime(
            Settings(
                models=root,
                sessions=root.parent / "sessions",
                state_key=write_key(root.parent / "key"),
                **settings,
            ),
            spawn=self.spawn,
            text=self.text,
        )
        self.store = self.runtime.store

    def add(self, name: str, data: bytes) -> None:
        create_from_gguf(self.store, ModelName.parse(name), self.store.add_blob([data]), TINY_WEIGHTS)

    async def names(self):
        return [status.name for status in await self.runtime.loaded()]

    async def say(self, name, prompt):
        async with self.runtime.resident(name) as model:
            return await self.continue_text(model, prompt)

    async def continue_text(self, model: ResidentModel, text: str) -> str:
        """What the fake worker gives back of the text."""
        tokenizer = Tokenizer.from_descriptor(model.text.vocabulary)
        outputs = await self.generate(model, prompt=tokenizer.encode(text, add_special=False))
        return tokenizer.decode([token for output in outputs for token in output.tokens])

    def request(self, model: ResidentModel, **fields: Any) -> Request:
        return Request(id=self.runtime.new_request_id(), model_id=model.model.weights_id, **fields)

    async def generate(self, model: ResidentModel, **fields: Any) -> list[StepOutput]:
        async with self.runtime.stream(self.request(model, **fields)) as outputs:
            return [output async for output in outputs]


@pytest.fixture
def daemon(tmp_path) -> Daemon:
    return Daemon(tmp_path / "models")


def run(main, *daemons: Daemon) -> None:
    async def body():
        try:
            await main()
        finally:
            for each in daemons:
                await each.runtime.close()

    asyncio.run(body())


async def until(condition) -> None:
    while not condition():  # noqa: ASYNC110
        await asyncio.sleep(0.001)


def test_text_goes_in_and_comes_out(daemon, weights):
    daemon.add("echo", weights[0])

    async def main():
        assert await daemon.say("echo", "The rain in Spain 🦙") == "The rain in Spain 🦙"
        assert await daemon.names() == ["echo:latest"]

    run(main, daemon)


def test_a_model_with_an_adapter_is_not_run_without_it(daemon, weights):
    daemon.add("base", weights[0])
    adapter = Layer(LAYER_TYPE + "adapter", daemon.store.add_blob([b"LoRA"]), 4)
    manifest = daemon.store.find(ModelName.parse("base")).manifest
    layers = [*manifest.layers, adapter]
    daemon.store.write_manifest(ModelName.parse("tuned"), msgspec.structs.replace(manifest, layers=layers))

    async def main():
        with pytest.raises(UnsupportedModel, match="model 'tuned:latest' needs an adapter"):
            await daemon.say("tuned", "hi")
        assert await daemon.names() == []
        assert await daemon.say("base", "hi") == "hi"

    run(main, daemon)


def test_a_draft_model_is_held_and_named(daemon, weights):
    daemon.add("large", weights[0])
    daemon.add("small", weights[1])

    async def main():
        async with daemon.runtime.resident("large", draft_model="small") as model:
            assert sorted(await daemon.names()) == ["large:latest", "small:latest"]
        assert model.draft_model_id == daemon.store.find(ModelName.parse("small")).weights_id
        with pytest.raises(ModelNotFound):
            async with daemon.runtime.resident("large", draft_model="nope"):
                pass

    run(main, daemon)


def test_where_there_is_no_room_for_a_draft_model_a_request_goes_without(tmp_path, weights):
    daemon = Daemon(tmp_path / "models", max_loaded_models=1)
    daemon.add("large", weights[0])
    daemon.add("small", weights[1])

    async def main():
        async with daemon.runtime.resident("large", draft_model="small") as model:
            assert await daemon.names() == ["large:latest"]
            assert model.draft_model_id is None

    run(main, daemon)


def test_weight_of_a_model_is_that_of_the_name_that_loads_it(tmp_path, weights):
    daemon = Daemon(tmp_path / "models", model_weights=(("Heavy", 3.0), ("other:v2", 0.5)))
    daemon.add("heavy", weights[0])
    daemon.add("plain", weights[1])

    async def main():
        for name in ("heavy", "plain"):
            async with daemon.runtime.resident(name):
                pass
        assert list(daemon.worker.weights.values()) == [3.0, 1.0]

    run(main, daemon)


def test_weight_of_what_cannot_be_a_model_is_an_error(tmp_path):
    with pytest.raises(SettingsError, match=r"PUNA_MODEL_WEIGHTS: invalid model name: a b"):
        Runtime(Settings(models=tmp_path, model_weights=(("a b", 2.0),)))


@pytest.mark.parametrize("again", ["q4", "Q4:latest", "library/q4"])
def test_a_name_that_comes_twice_is_an_error(tmp_path, again):
    for field, name in (("model_weights", "PUNA_MODEL_WEIGHTS"), ("kv_minimums", "PUNA_MODEL_KV_MIN")):
        with pytest.raises(SettingsError, match=f"{name}: {again} comes twice"):
            Runtime(Settings(models=tmp_path, **{field: (("q4", 1), ("q4:v2", 1), (again, 2))}))


def test_names_that_share_weights_share_one_resident_model(daemon, weights):
    daemon.add("first", weights[0])
    daemon.add("second:v2", weights[0])
    daemon.add("third", weights[1])

    async def main():
        async with daemon.runtime.resident("second:v2") as second, daemon.runtime.resident("FIRST") as first:
            assert first.text is second.text
            assert (first.model.name.short, second.model.name.short) == ("first:latest", "second:v2")
            assert len(daemon.worker.models) == 1
            async with daemon.runtime.resident("third") as third:
                assert third.text is not first.text
        assert sorted(await daemon.names()) == ["second:v2", "third:latest"]  # the name that loaded it
        await daemon.runtime.unload("first")
        assert await daemon.names() == ["third:latest"]

    run(main, daemon)


@pytest.mark.parametrize(
    ("setting", "wanted", "effective"),
    [(0, None, INFO.context_length), (512, None, 512), (512, 1024, 1024), (0, 1 << 20, INFO.context_length)],
)
def test_context_length_is_the_requests_the_settings_or_the_models(
    tmp_path, weights, setting, wanted, effective
):
    daemon = Daemon(tmp_path / "models", context_length=setting)
    daemon.add("m", weights[0])

    async def main():
        async with daemon.runtime.resident("m", num_ctx=wanted) as model:
            assert model.context_length == effective
        assert (await daemon.runtime.loaded())[0].context_length == effective

    run(main, daemon)


def test_status_of_a_loaded_model(daemon, weights):
    daemon.add("m", weights[0])

    async def main():
        async with daemon.runtime.resident("m", keep_alive=math.inf) as model:
            assert model.load_duration_ns > 0
        (status,) = await daemon.runtime.loaded()
        assert status.digest == daemon.store.find(ModelName.parse("m")).digest
        assert status.size == INFO.weight_bytes
        assert status.config.family == "llama"
        assert status.expires_at.year > 2300
        assert status.kv == (await daemon.runtime.worker.call(GetStats())).models[0]

    run(main, daemon)


def test_keep_alive_zero_unloads(daemon, weights):
    daemon.add("m", weights[0])

    async def main():
        async with daemon.runtime.resident("m", keep_alive=0):
            assert await daemon.names() == ["m:latest"]
        await daemon.runtime.unload("m")  # returns when it is gone
        assert await daemon.names() == []
        assert daemon.worker.models == {}

    run(main, daemon)


def test_unknown_and_invalid_names_are_errors(daemon):
    async def main():
        with pytest.raises(ModelNotFound, match="model 'nope:latest' not found"):
            async with daemon.runtime.resident("nope"):
                pass
        with pytest.raises(InvalidModelName):
            async with daemon.runtime.resident("../../etc/passwd"):
                pass
        with pytest.raises(ModelNotFound):
            await daemon.runtime.unload("nope")

    run(main, daemon)


def test_deleting_a_resident_model_leaves_running_requests_unharmed(daemon, weights):
    daemon.add("m", weights[0])

    async def main():
        async with daemon.runtime.resident("m") as model:
            daemon.store.delete(ModelName.parse("m"))
            assert await daemon.continue_text(model, "still here") == "still here"
        await daemon.runtime.unload("m")  # it is still known by its name
        assert await daemon.names() == []

    run(main, daemon)


def test_a_damaged_model_can_be_deleted_and_its_prefixes_go(daemon, weights):
    daemon.add("m", weights[0])
    path = daemon.store.find(ModelName.parse("m")).model_path

    async def main():
        await daemon.runtime.observe(wait=True)
        os.truncate(path, 1)
        await daemon.runtime.delete(ModelName.parse("m"))
        assert not path.exists()
        assert daemon.worker.erased == [path.name]

    run(main, daemon)


def test_load_error_of_the_worker_reaches_the_request(daemon, weights):
    daemon.add("m", weights[0])
    daemon.unloadable.add(daemon.store.find(ModelName.parse("m")).model_path.name)

    async def main():
        with pytest.raises(ModelLoadError, match="is broken"):
            async with daemon.runtime.resident("m"):
                pass
        assert await daemon.names() == []

    run(main, daemon)


def test_file_without_a_usable_vocabulary_is_a_load_error_and_leaves_nothing_in_the_worker(daemon, weights):
    broken = weights[0].replace(b"tokenizer.ggml.tokens", b"tokenizer.ggml.t0kens")
    daemon.add("m", broken)

    async def main():
        with pytest.raises(ModelLoadError, match=r"tokenizer\.ggml\.tokens"):
            async with daemon.runtime.resident("m"):
                pass
        assert daemon.worker.models == {}
        assert await daemon.names() == []

    run(main, daemon)


def test_load_that_takes_too_long_is_given_up(tmp_path, weights):
    daemon = Daemon(tmp_path / "models", load_timeout_s=0.001)
    daemon.add("m", weights[0])

    async def main():
        with pytest.raises(ModelLoadError, match=r"loading m:latest took longer than 0\.001 s"):
            async with daemon.runtime.resident("m"):
                pass

    run(main, daemon)


def test_after_the_workers_death_the_next_request_works(daemon, weights):
    daemon.add("m", weights[0])

    async def main():
        async with daemon.runtime.resident("m") as model:
            generating = asyncio.create_task(daemon.generate(model, prompt=[65] * 1000))
            await until(lambda: daemon.worker.requests)
            daemon.worker.die()
            with pytest.raises(WorkerDied, match="model runner has unexpectedly stopped"):
                await generating
        assert await daemon.say("m", "again") == "again"
        assert await daemon.names() == ["m:latest"]

    run(main, daemon)


def test_model_lost_with_the_worker_is_no_longer_listed(daemon, weights, caplog):
    daemon.add("m", weights[0])

    async def main():
        await daemon.say("m", "x")
        daemon.unloadable.add(next(iter(daemon.worker.models)))
        daemon.worker.die()
        await asyncio.sleep(0.05)
        await daemon.runtime.worker.call(GetStats())  # waits for the next worker
        await daemon.runtime.unload("m")  # waits until it is gone
        assert await daemon.names() == []

    run(main, daemon)
    assert "m:latest is no longer loaded: " in caplog.text


def test_a_saved_session_outlives_worker_and_model(daemon, weights):
    daemon.add("m", weights[0])

    async def main():
        async with daemon.runtime.resident("m") as model:
            daemon.worker.pinned[model.model.weights_id, "a"] = 40
        entry = await daemon.runtime.sessions.save("m", "a")
        assert (entry.model, entry.num_tokens, entry.pinned, entry.saved_at) == (
            "m:latest",
            40,
            True,
            SAVED_AT,
        )
        daemon.worker.die()
        await daemon.runtime.unload("m")
        [entry] = await daemon.runtime.sessions.list()
        assert (entry.name, entry.num_tokens, entry.pinned) == ("a", 40, False)
        assert (await daemon.runtime.sessions.load("m", "a")).pinned
        assert await daemon.names() == ["m:latest"]
        await daemon.runtime.sessions.remove("m", "a")
        assert await daemon.runtime.sessions.list() == []

    run(main, daemon)


def test_observing_wakes_nobody_and_remembers_names(daemon, weights):
    daemon.add("first", weights[0])
    daemon.add("second", weights[0])

    async def main():
        observation = await daemon.runtime.observe()
        assert (observation.stats, observation.num_worker_starts) == (None, 0)
        assert await daemon.runtime.trace(None) == (None, {})
        assert daemon.workers == []
        await daemon.say("first", "x")
        (model_id,) = daemon.worker.models
        await daemon.runtime.unload("first")
        await daemon.say("second", "x")
        observation = await daemon.runtime.observe()
        assert observation.stats is not None
        assert observation.num_worker_starts == 1
        assert observation.model_names == {model_id: "first:latest"}
        assert (await daemon.runtime.trace(3.0))[0].end_ns == 3e9

    run(main, daemon)


def test_memory_waits_for_a_worker(daemon):
    async def main():
        observation = await daemon.runtime.observe(wait=True)
        assert observation.stats is not None
        assert observation.num_worker_starts == 1
        assert await daemon.runtime.set_limits(1 << 30, None) == 0
        assert daemon.worker.limits == (1 << 30, None)
        assert await daemon.runtime.worker.call(TrimKv()) == 0

    run(main, daemon)


def test_a_worker_that_does_not_answer_is_not_waited_for(daemon, weights, monkeypatch):
    monkeypatch.setattr("puna.daemon.runtime._ANSWER_TIMEOUT_S", 0.01)
    monkeypatch.setattr("puna.daemon.runtime._LIST_TIMEOUT_S", 0.01)
    daemon.add("m", weights[0])

    async def main():
        await daemon.say("m", "x")
        monkeypatch.setattr(daemon.worker, "call", lambda *_: asyncio.Event().wait())
        with pytest.raises(TimeoutError):
            await daemon.runtime.observe()
        assert [status.kv for status in await daemon.runtime.loaded()] == [None]

    run(main, daemon)


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


def test_the_last_name_of_weights_takes_their_cached_prefixes_along(daemon: Daemon, weights: list[bytes]):
    async def main() -> None:
        daemon.add("a", weights[0])
        daemon.add("b", weights[0])
        model_id = daemon.store.find(ModelName.parse("a")).weights_id
        await daemon.names()
        await daemon.say("a", "hi")
        await daemon.runtime.delete(ModelName.parse("a"))
        assert daemon.worker.erased == []
        await daemon.runtime.delete(ModelName.parse("b"))
        assert daemon.worker.erased == [model_id]

    run(main, daemon)


def test_a_model_that_is_deleted_leaves_memory_when_nobody_uses_it(daemon: Daemon, weights: list[bytes]):
    async def main() -> None:
        daemon.add("a", weights[0])
        await daemon.say("a", "hi")
        await daemon.runtime.delete(ModelName.parse("a"))
        assert daemon.worker.models == {}
        daemon.add("b", weights[0])
        async with daemon.runtime.resident("b"):
            await daemon.runtime.delete(ModelName.parse("b"))
            assert daemon.worker.models
        await until(lambda: not daemon.worker.models)

    run(main, daemon)
