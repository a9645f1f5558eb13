"""Counters and timeline of an engine at work say what happened."""

from __future__ import annotations

from collections import Counter
from itertools import groupby, pairwise
from operator import attrgetter

import pytest

from puna.engine import EngineCore
from puna.engine.observation.metrics import ModelMetrics
from puna.engine.observation.trace import EngineTrace
from tests.engine.toy import POISON, Results, ToyModel, run_all, toy_engine, toy_request, toy_source

pytestmark = pytest.mark.native

NEXT = {
    "queued": {"admitted", "finished"},
    "admitted": {"token", "preempted", "finished"},
    "token": {"preempted", "finished"},
    "preempted": {"admitted", "finished"},
}
"""What may follow, shifts aside."""


def metrics_of(engine: EngineCore) -> ModelMetrics:
    return engine.stats().metrics["toy"]


def check_books(engine: EngineCore, results: Results) -> None:
    """What holds after any requests."""
    metrics = metrics_of(engine)
    assert metrics.finished == Counter(output.finish_reason for output in results.last.values())
    all_stats = [output.stats for output in results.last.values() if output.stats is not None]
    with_tokens = [stats for stats in all_stats if stats.generated_tokens]
    assert metrics.prompt_tokens == sum(stats.prompt_tokens for stats in with_tokens)
    assert metrics.cached_tokens == sum(stats.cached_tokens for stats in with_tokens)
    assert metrics.generated_tokens == sum(stats.generated_tokens for stats in all_stats)
    assert metrics.first_token_s.count == len(with_tokens)
    assert metrics.inter_token_s.count == metrics.generated_tokens - len(with_tokens)
    assert metrics.request_s.count == len(all_stats)
    assert metrics.first_token_s.total <= metrics.request_s.total
    trace = engine.trace()
    assert metrics.step_s.count == len(trace.steps)
    assert metrics.device_busy_s <= metrics.step_s.total
    check_steps(trace)
    check_lives(trace)


def check_steps(trace: EngineTrace) -> None:
    for step in trace.steps:
        assert trace.begin_ns <= step.start_ns <= step.end_ns <= trace.end_ns
        assert step.num_sequences <= step.prefill_tokens + step.decode_tokens
    for before, after in pairwise(trace.steps):
        assert before.end_ns <= after.start_ns


def check_lives(trace: EngineTrace) -> None:
    events = sorted(trace.events, key=attrgetter("request_id"))  # keeps their order
    for _, life in groupby(events, attrgetter("request_id")):
        kinds = [event.kind for event in life if event.kind != "shifted"]
        assert (kinds[0], kinds[-1]) == ("queued", "finished")
        assert all(after in NEXT[before] for before, after in pairwise(kinds)), kinds


def test_requests_side_by_side():
    model = ToyModel()
    engine = toy_engine(model)
    for i in range(6):
        engine.submit(toy_request(str(i), [i] * (10 + i), 5))
    results = run_all(engine)
    check_books(engine, results)
    metrics = metrics_of(engine)
    assert metrics.finished == {"length": 6}
    assert (metrics.prompt_tokens, metrics.cached_tokens, metrics.generated_tokens) == (75, 0, 30)
    assert (metrics.prefill_tokens, metrics.decode_tokens) == (75, 6 * 4)  # the last is not computed
    assert metrics.queue_s.count == 6
    assert metrics.num_preemptions == 0
    assert [sum(step) for step in model.steps] == [
        step.prefill_tokens + step.decode_tokens for step in engine.trace().steps
    ]


def test_cached_tokens():
    engine = toy_engine()
    results = Results()
    for name in "ab":
        engine.submit(toy_request(name, [1] * 100, 3))
        run_all(engine, results)
    check_books(engine, results)
    assert metrics_of(engine).cached_tokens == 99
    admitted = [event.num_tokens for event in engine.trace().events if event.kind == "admitted"]
    assert admitted == [0, 96]  # whole blocks; the rest is copied later


def test_preemptions():
    engine = toy_engine(num_blocks=8)
    for i in range(4):
        engine.submit(toy_request(str(i), [i] * 20, 60))
    results = run_all(engine)
    check_books(engine, results)
    metrics = metrics_of(engine)
    kinds = Counter(event.kind for event in engine.trace().events)
    assert metrics.num_preemptions == kinds["preempted"] == engine.stats().models[0].num_preemptions > 0
    assert kinds["admitted"] == kinds["preempted"] + 4
    assert metrics.queue_s.count == 4
    assert metrics.prompt_tokens == 80


def test_context_shifts():
    engine = toy_engine()
    engine.submit(toy_request("r", [1] * 10, 200, context_length=64, shift=True))
    results = run_all(engine)
    check_books(engine, results)
    shifts = [event.num_tokens for event in engine.trace().events if event.kind == "shifted"]
    assert shifts == [32] * metrics_of(engine).num_shifts
    assert len(shifts) == 5  # 209 tokens in a context of 64 that shifts by 32


def test_every_way_to_end():
    engine = toy_engine()
    results = Results()
    engine.submit(toy_request("length", [1], 3))
    engine.submit(toy_request("cancelled", [2], 1000))
    engine.submit(toy_request("nothing", [3], 0))
    engine.submit(toy_request("early", [4] * 1000, 5))
    engine.cancel("early")
    for _ in range(5):
        results.add(engine.step())
    engine.cancel("cancelled")
    run_all(engine, results)
    engine.submit(toy_request("error", [POISON], 5))
    run_all(engine, results)
    check_books(engine, results)
    assert metrics_of(engine).finished == {"length": 2, "cancelled": 2, "error": 1}
    reasons = {e.request_id: e.finish_reason for e in engine.trace().events if e.kind == "finished"}
    assert reasons == {name: output.finish_reason for name, output in results.last.items()}


def test_requests_that_are_turned_away():
    engine = toy_engine(max_running=1, max_queue=1)
    for i in range(4):
        engine.submit(toy_request(str(i), [i], 3))
    results = run_all(engine)
    check_books(engine, results)
    assert metrics_of(engine).finished == {"length": 2, "busy": 2}


def test_totals_outlive_the_model():
    engine = toy_engine()
    results = Results()
    engine.submit(toy_request("a", [1] * 5, 2))
    run_all(engine, results)
    engine.submit(toy_request("b", [1] * 5, 2))
    engine.unload_model("toy")
    results.add(engine.step())
    check_books(engine, results)
    assert engine.stats().models == []
    engine.load_model("toy", toy_source("0"))
    engine.submit(toy_request("c", [1] * 5, 2))
    run_all(engine, results)
    check_books(engine, results)
    assert metrics_of(engine).finished == {"length": 2, "error": 1}


def test_each_model_has_its_own():
    engine = toy_engine()
    engine.load_model("other", toy_source("1"))
    engine.submit(toy_request("a", [1] * 5, 2))
    engine.submit(toy_request("b", [1] * 7, 2, model_id="other"))
    run_all(engine)
    metrics = engine.stats().metrics
    assert {name: each.prompt_tokens for name, each in metrics.items()} == {"toy": 5, "other": 7}
    assert {step.model_id for step in engine.trace().steps} == {"toy", "other"}
