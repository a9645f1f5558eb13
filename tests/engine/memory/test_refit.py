"""Models whose extents are too coarse for a limit that was lowered get others, as soon as they use none."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from puna.backends.base import ModelLoadError
from puna.engine import EngineCore, EngineSettings
from tests.engine.offload.test_warm_prefixes import Desk
from tests.engine.toy import (
    BLOCK_BYTES,
    COARSE,
    Results,
    ToyBackend,
    ToyModel,
    expected_tokens,
    run_all,
    toy_engine,
    toy_request,
)

pytestmark = pytest.mark.native

EXTENT_BYTES = COARSE * BLOCK_BYTES
LARGE = 128 * COARSE  # blocks, for which extents are coarse


def coarse_engine(**settings: object) -> EngineCore:
    engine = toy_engine(num_blocks=LARGE, **settings)
    assert extent_bytes(engine) == EXTENT_BYTES
    return engine


def extent_bytes(engine: EngineCore) -> int:
    return engine._models["toy"].kv.extent_bytes


def say(engine: EngineCore, prompt: list[int], name: str = "r", **fields: object) -> int:
    """How many tokens were cached; checks the answer."""
    engine.submit(toy_request(name, prompt, **fields))
    results = run_all(engine)
    assert results.tokens[name] == expected_tokens(prompt, 10)
    return results.last[name].stats.cached_tokens


@pytest.mark.parametrize("policy", [{}, {"cache_policy": "slots", "max_running": 2}])
def test_a_model_stays_usable_below_the_size_of_its_extents(policy: dict[str, object]):
    engine = coarse_engine(**policy)
    say(engine, [1] * 50)
    assert engine.set_limits(kv_limit_bytes=10 * BLOCK_BYTES) == 0
    say(engine, [1] * 50)
    assert engine.stats().models[0].committed_kv_bytes <= 10 * BLOCK_BYTES
    engine.close()
    assert engine.memory.budget.committed_bytes == 0


def test_limits_on_all_memory_and_leases_leave_little_too():
    engine = EngineCore(ToyBackend(), EngineSettings(kv_limit_bytes=LARGE * BLOCK_BYTES))
    engine.attach_model("toy", ToyModel(weight_bytes=1000))
    engine.set_limits(memory_limit_bytes=1000 + 20 * BLOCK_BYTES)
    say(engine, [1] * 50)
    engine = coarse_engine()
    assert engine.lease((LARGE - 10) * BLOCK_BYTES)
    say(engine, [1] * 50)


def test_a_guarantee_holds_on():
    engine = EngineCore(ToyBackend(), EngineSettings(kv_limit_bytes=LARGE * BLOCK_BYTES))
    engine.attach_model("toy", ToyModel(), guaranteed_bytes=5 * BLOCK_BYTES)
    engine.set_limits(kv_limit_bytes=20 * BLOCK_BYTES)
    assert engine.stats().models[0].guaranteed_kv_bytes == 5 * BLOCK_BYTES
    assert not engine.lease(16 * BLOCK_BYTES)
    assert engine.lease(15 * BLOCK_BYTES)


def test_a_model_in_use_is_refitted_when_it_is_idle_and_those_who_come_meanwhile_wait():
    engine = coarse_engine()
    engine.submit(toy_request("old", [1] * 100, 30, num_draft=0))
    results = Results()
    for _ in range(3):
        results.add(engine.step())
    assert engine.set_limits(kv_limit_bytes=20 * BLOCK_BYTES) > 0
    engine.submit(toy_request("new", [2] * 100, 30, num_draft=0))
    results.add(engine.step())
    assert extent_bytes(engine) == EXTENT_BYTES
    run_all(engine, results)
    assert results.tokens["old"] == expected_tokens([1] * 100, 30)
    assert results.tokens["new"] == expected_tokens([2] * 100, 30)
    assert extent_bytes(engine) == BLOCK_BYTES


def test_who_needs_more_than_the_extents_that_are_left_begins_again_in_finer_ones():
    model = ToyModel(block_bytes=EXTENT_BYTES // 8, extent_blocks=8)
    engine = EngineCore(ToyBackend(), EngineSettings(kv_limit_bytes=64 * EXTENT_BYTES))
    engine.attach_model("toy", model)
    assert extent_bytes(engine) == EXTENT_BYTES
    engine.submit(toy_request("r", [1] * 100, 80, num_draft=0))
    results = Results()
    for _ in range(3):
        results.add(engine.step())
    engine.set_limits(kv_limit_bytes=EXTENT_BYTES * 15 // 8)
    run_all(engine, results)
    assert results.tokens["r"] == expected_tokens([1] * 100, 80)


def test_sessions_keep_what_they_have_while_there_is_memory_and_are_known_after():
    engine = coarse_engine()
    say(engine, [1] * 50, session="s")
    engine.set_limits(kv_limit_bytes=2 * EXTENT_BYTES)
    assert say(engine, [1] * 50) > 0
    assert [status.pinned for status in engine.sessions.statuses()] == [True]
    engine.set_limits(kv_limit_bytes=10 * BLOCK_BYTES)
    say(engine, [2] * 50)
    assert [status.pinned for status in engine.sessions.statuses()] == [False]
    say(engine, [1] * 50, session="s")
    assert [status.pinned for status in engine.sessions.statuses()] == [True]


def test_what_is_cached_goes_to_disk_and_comes_back(tmp_path: Path):
    desk = Desk(tmp_path, num_blocks=LARGE)
    prompt = [number % 90 for number in range(100)]
    assert desk.say(prompt) == 0
    desk.engine.set_limits(kv_limit_bytes=4 * EXTENT_BYTES)
    desk.threads.run()
    assert extent_bytes(desk.engine) == BLOCK_BYTES
    assert desk.say(prompt) >= 96


def test_a_draft_model_drafts_on():
    engine = EngineCore(ToyBackend(), EngineSettings(kv_limit_bytes=LARGE * BLOCK_BYTES))
    engine.attach_model("toy", ToyModel(is_habitual=True))
    engine.attach_model("draft", ToyModel(is_habitual=True))
    engine.set_limits(kv_limit_bytes=40 * BLOCK_BYTES)
    engine.submit(toy_request("r", [1, 2, 3] * 10, 60, draft_model_id="draft", num_draft=3))
    results = run_all(engine)
    assert results.last["r"].stats.accepted_tokens > 0
    assert results.last["r"].stats.generated_tokens == 60


def test_without_address_space_a_model_keeps_its_extents(monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: object) -> None:
        raise ModelLoadError("no address space")

    engine = coarse_engine()
    monkeypatch.setattr(ToyModel, "reserve", refuse)
    engine.set_limits(kv_limit_bytes=10 * BLOCK_BYTES)
    engine.submit(toy_request("r", [1] * 50))
    assert "the limits leave it 0 B" in str(run_all(engine).last["r"].error)


@pytest.mark.parametrize("seed", range(20))
def test_limits_that_change_at_random_lose_nobody(seed: int, tmp_path: Path):
    chance = random.Random(seed)
    desk = Desk(tmp_path, num_blocks=LARGE) if seed % 2 else None
    engine = desk.engine if desk else coarse_engine()
    engine.attach_model("other", ToyModel(1))
    prompts = {}
    results = Results()
    for number in range(60):
        action = chance.randrange(6)
        if action == 0:
            sizes = [LARGE * BLOCK_BYTES, 3 * EXTENT_BYTES, EXTENT_BYTES - 1, 40 * BLOCK_BYTES]
            engine.set_limits(kv_limit_bytes=chance.choice(sizes))
        elif action == 1:
            engine.unload_model("other")
            engine.attach_model("other", ToyModel(1))
        elif action < 4:
            model_id = chance.choice(["toy", "toy", "other"])
            prompt = [chance.randrange(3)] * chance.randrange(1, 200)
            draft = chance.choice([None, "toy", "other"])
            session = chance.choice([None, None, "s"])
            fields = {"model_id": model_id, "draft_model_id": draft, "session": session}
            engine.submit(toy_request(str(number), prompt, 20, **fields))
            prompts[str(number)] = prompt, model_id
        else:
            results.add(engine.step())
            if desk and chance.random() < 0.3:
                desk.threads.run()
        engine.check()
    for _ in range(5000):
        results.add(engine.step())
        if desk:
            desk.threads.run()
        engine.check()
        if not engine.has_work:
            break
    for name, (prompt, model_id) in prompts.items():
        if results.last[name].finish_reason == "error":
            assert results.last[name].error == "the model was unloaded", results.last[name].error
        else:
            assert results.tokens[name] == expected_tokens(prompt, 20, int(model_id == "other"))
    engine.close()
    if desk:
        desk.threads.run()
    assert engine.memory.budget.committed_bytes == 0
