"""A long step ends early once nobody waits for it, and is done for all of those who still do."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from puna._native import NativeError
from puna.backends.base import ModelSource
from puna.backends.cpu import CpuBackend
from puna.engine import EngineCore, EngineSettings, Request
from tests.engine.toy import STATE_BYTES, ToyModel, expected_tokens, run_all, toy_engine, toy_request

pytestmark = pytest.mark.native


class Interrupted(ToyModel):
    """In one of its steps, something happens; a step that is stopped then writes half of what it would."""

    def __init__(self, at_step: int, happens: Callable[[], None], **fields: int) -> None:
        super().__init__(**fields)
        self.at_step, self.happens, self.num_cut = at_step, happens, 0

    def logits(self, batch, kv):
        logits = super().logits(batch, kv)
        if len(self.steps) == self.at_step:
            self.happens()
        if batch.control.is_stopped:
            self.num_cut += 1
            raise NativeError("the step was stopped")
        return logits


def test_a_step_that_nobody_waits_for_is_cut_and_its_request_cancelled():
    model = Interrupted(2, lambda: engine.interrupt("r"))
    engine = toy_engine(model)
    engine.submit(toy_request("r", [1] * 600, 5))
    engine.step()
    assert engine.step() == []
    engine.check()
    engine.cancel("r")
    assert [output.finish_reason for output in engine.step()] == ["cancelled"]
    assert model.num_cut == 1
    engine.submit(toy_request("again", [1] * 600, 5))
    results = run_all(engine)
    assert results.tokens["again"] == expected_tokens([1] * 600, 5)
    assert results.last["again"].stats.cached_tokens == 256


def test_a_step_goes_on_for_others():
    model = Interrupted(2, lambda: engine.interrupt("r"))
    engine = toy_engine(model)
    for name, tokens in (("r", [1] * 20), ("s", [2] * 20)):
        engine.submit(toy_request(name, tokens, 5))
    results = run_all(engine)
    assert model.num_cut == 0
    assert results.tokens == {"r": expected_tokens([1] * 20, 5), "s": expected_tokens([2] * 20, 5)}


@pytest.mark.parametrize("state_bytes", [0, STATE_BYTES])
def test_a_step_that_was_cut_for_nothing_is_done_again(state_bytes: int):
    model = Interrupted(3, lambda: engine.interrupt("r"), state_bytes=state_bytes)
    engine = toy_engine(model)
    engine.submit(toy_request("r", [1, 2], 30))
    results = run_all(engine)
    assert model.num_cut == 1
    assert results.tokens["r"] == expected_tokens([1, 2], 30, has_state=state_bytes > 0)


def test_who_has_no_part_in_the_step_interrupts_nothing():
    engine = toy_engine()
    engine.interrupt("r")
    engine.submit(toy_request("r", [1, 2], 5))
    assert run_all(engine).tokens["r"] == expected_tokens([1, 2], 5)


def test_a_real_step_ends_within_it(smollm2_path: Path):
    backend = CpuBackend(num_threads=2)
    engine = EngineCore(backend, EngineSettings(kv_limit_bytes=128 << 20, prefill_tokens=1024))
    with ModelSource.open(smollm2_path) as source:
        engine.load_model("m", source)
    request = Request(id="r", model_id="m", prompt=[n % 40_000 + 20 for n in range(1000)], max_tokens=1)

    def interrupt() -> None:
        while backend.activity().num_tasks < 20:
            time.sleep(0.0001)
        engine.interrupt("r")

    thread = threading.Thread(target=interrupt)
    engine.submit(request)
    thread.start()
    outputs = engine.step()
    thread.join()
    assert outputs == []
    whole = [output for _ in range(3) for output in engine.step()]
    assert [output.finish_reason for output in whole] == ["length"]
    engine.close()
    backend.close()
