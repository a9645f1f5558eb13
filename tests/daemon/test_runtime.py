"""What the HTTP faces see of the daemon. Workers are fakes, the store is real."""

from __future__ import annotations

import asyncio
import math
import os

import pytest

from puna.backends.base import ModelLoadError
from puna.config.settings import Settings, SettingsError
from puna.daemon.runtime import Runtime
from puna.registry import InvalidModelName, Layer, Manifest, ModelName, ModelNotFound
from puna.registry.store.manifest import LAYER_TYPE
from puna.worker.call_client import WorkerDied
from puna.worker.engine.messages import GetStats, TrimKv
from tests.daemon.fake_sessions import SAVED_AT
from tests.daemon.fake_worker import INFO
from tests.daemon.harness import Daemon, run, until

pytestmark = pytest.mark.native


def test_text_goes_in_and_comes_out(daemon, weights):
    daemon.add("echo", weights[0])

    async def main():
        assert await daemon.say("echo", "The rain in Spain 🦙") == "The rain in Spain 🦙"
        assert await daemon.names() == ["echo:latest"]

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


def test_a_model_brings_its_draft_model_along(daemon, weights):
    store = daemon.store
    daemon.add("small", weights[1])
    for name, draft in (("large", store.find(ModelName.parse("small")).model_path), ("broken", None)):
        daemon.add(name, weights[0])
        manifest = store.find(ModelName.parse(name)).manifest
        content = b"no model" if draft is None else draft.read_bytes()
        layer = Layer(f"{LAYER_TYPE}draft", store.add_blob([content]), len(content))
        layers = [*manifest.layers, layer]
        store.write_manifest(ModelName.parse(name), Manifest(config=manifest.config, layers=layers))

    async def main():
        async with daemon.runtime.resident("large") as model:
            assert sorted(await daemon.names()) == ["large:latest", "large:latest-draft"]
        assert model.draft_model_id == store.find(ModelName.parse("small")).weights_id
        for _ in range(2):
            async with daemon.runtime.resident("broken") as model:
                assert model.draft_model_id is None

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


def test_share_of_a_model_is_that_of_the_name_that_loads_it(tmp_path, weights):
    daemon = Daemon(tmp_path / "models", model_shares=(("Heavy", 3.0), ("other:v2", 0.5)))
    daemon.add("heavy", weights[0])
    daemon.add("plain", weights[1])

    async def main():
        for name in ("heavy", "plain"):
            async with daemon.runtime.resident(name):
                pass
        assert list(daemon.worker.shares.values()) == [3.0, 1.0]

    run(main, daemon)


def test_share_of_what_cannot_be_a_model_is_an_error(tmp_path):
    with pytest.raises(SettingsError, match=r"PUNA_MODEL_SHARES: invalid model name: a b"):
        Runtime(Settings(models=tmp_path, model_shares=(("a b", 2.0),)))


@pytest.mark.parametrize("again", ["q4", "Q4:latest", "library/q4"])
def test_a_name_that_comes_twice_is_an_error(tmp_path, again):
    for field, name in (("model_shares", "PUNA_MODEL_SHARES"), ("kv_guarantees", "PUNA_MODEL_KV_MIN")):
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
        await until(lambda: len(daemon.workers) == 2)
        await daemon.runtime.worker.call(GetStats())  # waits until it has its models
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
        assert daemon.worker.limits == (1 << 30, daemon.worker.ready.memory_limit_bytes)
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
