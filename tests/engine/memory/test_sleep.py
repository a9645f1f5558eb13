"""A model that sleeps keeps nothing but what makes waking quick, and is then as it was."""

from __future__ import annotations

from typing import Any

import pytest

from puna.backends.base import ModelLoadError
from tests.engine.toy import ToyModel, expected_tokens, run_all, toy_engine, toy_request

pytestmark = pytest.mark.native


@pytest.mark.parametrize("settings", [{}, {"cache_policy": "slots"}], ids=["prefix", "slots"])
def test_asleep_it_has_no_memory_and_awake_it_answers_as_before(settings: dict[str, Any]):
    model = ToyModel()
    engine = toy_engine(model, **settings)
    for round_number in range(3):
        engine.submit(toy_request(f"r{round_number}", [1, 2, 3], 40))
        assert run_all(engine).tokens[f"r{round_number}"] == expected_tokens([1, 2, 3], 40)
        engine.sleep_model("toy")
        assert model.is_asleep
        assert not model.closed
        (stats,) = engine.stats().models
        assert (stats.is_asleep, stats.committed_kv_bytes, stats.block_bytes) == (True, 0, 64)
        engine.check()
        assert engine.wake_model("toy") == model.info
        assert not engine.stats().models[0].is_asleep
    engine.close()
    assert model.closed


def test_its_share_of_the_device_is_as_before():
    engine = toy_engine(ToyModel())
    engine.attach_model("heavy", ToyModel(), 3.0)
    for model_id in ("heavy", "toy"):
        engine.sleep_model(model_id)
        engine.wake_model(model_id)
    assert [engine._models[name].share for name in ("heavy", "toy")] == [3.0, 1.0]
    engine.close()


def test_its_requests_end_those_of_others_go_on_and_the_next_one_wakes_it():
    engine = toy_engine()
    engine.attach_model("other", ToyModel(salt=1))
    engine.submit(toy_request("gone", [1], None))
    engine.submit(toy_request("stays", [1], 10, model_id="other"))
    engine.step()
    engine.sleep_model("toy")
    engine.submit(toy_request("late", [1]))
    results = run_all(engine)
    assert results.last["gone"].finish_reason == "error"
    assert results.tokens["late"] == expected_tokens([1], 10)
    assert results.last["stays"].finish_reason == "length"
    engine.close()


def test_a_model_that_does_not_fit_sleeps_on():
    model = ToyModel()
    engine = toy_engine(model)
    engine.sleep_model("toy")
    engine.set_limits(memory_limit_bytes=1)
    with pytest.raises(ModelLoadError):
        engine.wake_model("toy")
    assert model.is_asleep
    engine.set_limits(memory_limit_bytes=1 << 30)
    engine.wake_model("toy")
    engine.close()


def test_who_sleeps_can_be_unloaded_but_not_loaded_twice():
    model, second = ToyModel(), ToyModel()
    engine = toy_engine(model)
    engine.sleep_model("toy")
    engine.sleep_model("toy")  # it does already
    with pytest.raises(ModelLoadError, match="already loaded"):
        engine.attach_model("toy", second)
    assert second.closed
    engine.unload_model("toy")
    assert model.closed
    assert engine.stats().models == []
    with pytest.raises(ModelLoadError, match="not loaded"):
        engine.wake_model("toy")
    engine.close()
