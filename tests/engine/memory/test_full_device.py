"""A device that has less memory than the limits allow: others make way, and nothing is lost."""

from __future__ import annotations

import re

import pytest

from puna.backends.base import ModelLoadError
from puna.engine import EngineCore, EngineSettings
from tests.engine.toy import (
    BLOCK_BYTES,
    ToyBackend,
    ToyModel,
    expected_tokens,
    run_all,
    toy_engine,
    toy_request,
)
from tests.engine.toy_memory import ToyDeviceMemory

pytestmark = pytest.mark.native


@pytest.fixture
def device() -> ToyDeviceMemory:
    return ToyDeviceMemory(20 * BLOCK_BYTES)


def test_later_requests_make_way_and_all_get_their_answers(device: ToyDeviceMemory):
    engine = toy_engine(ToyModel(device_memory=device))
    prompts = {str(number): [number] * 90 for number in range(6)}
    for name, prompt in prompts.items():
        engine.submit(toy_request(name, prompt, 60))
    results = run_all(engine)
    assert device.num_refused > 0
    for name, prompt in prompts.items():
        assert results.tokens[name] == expected_tokens(prompt, 60)
    assert engine.stats().models[0].num_preemptions < 40


def test_a_lone_request_that_needs_more_is_told_so(device: ToyDeviceMemory):
    engine = toy_engine(ToyModel(device_memory=device))
    engine.submit(toy_request("long", [1] * 500))
    engine.submit(toy_request("short", [1] * 50))
    results = run_all(engine)
    error = r"the request needs [0-9.]+ KiB of KV memory, more than the device has left"
    assert re.fullmatch(error, results.last["long"].error)
    assert results.tokens["short"] == expected_tokens([1] * 50, 10)
    device.limit_bytes = None
    engine.submit(toy_request("again", [1] * 500))
    assert run_all(engine).tokens["again"] == expected_tokens([1] * 500, 10)
    engine.close()
    assert device.used_bytes == 0


def test_what_other_models_have_cached_goes(device: ToyDeviceMemory):
    engine = EngineCore(ToyBackend(), EngineSettings(kv_limit_bytes=1000 * BLOCK_BYTES))
    for model_id in ("a", "b"):
        engine.attach_model(model_id, ToyModel(device_memory=device))
    for model_id in ("a", "b", "a"):
        engine.submit(toy_request(model_id, [1] * 280, 5, model_id=model_id))
        assert run_all(engine).tokens[model_id] == expected_tokens([1] * 280, 5)
    assert device.num_refused > 0
    assert device.used_bytes == engine.memory.budget.committed_bytes


def test_a_static_model_that_does_not_fit_is_not_loaded(device: ToyDeviceMemory):
    settings = EngineSettings(kv_limit_bytes=1000 * BLOCK_BYTES, elastic=False, max_running=2)
    engine = EngineCore(ToyBackend(), settings)
    model = ToyModel(context_length=160, device_memory=device)
    engine.attach_model("fits", model)
    assert device.used_bytes == 20 * BLOCK_BYTES
    with pytest.raises(ModelLoadError, match="the toy is full"):
        engine.attach_model("does not", ToyModel(context_length=160, device_memory=device))
    engine.submit(toy_request("r", [1] * 100, model_id="fits"))
    assert run_all(engine).tokens["r"] == expected_tokens([1] * 100, 10)
    engine.close()
    assert device.used_bytes == 0
