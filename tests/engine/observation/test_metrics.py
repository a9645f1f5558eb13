"""Histograms, and what the recorder makes of the life of a request."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from puna.engine.observation.metrics import LATENCY_BOUNDS_S, STEP_BOUNDS_S, Histogram
from tests.engine.observation.recording import MS, run_step, submit

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("bounds", [LATENCY_BOUNDS_S, STEP_BOUNDS_S])
def test_bounds_ascend(bounds):
    assert list(bounds) == sorted(set(bounds))
    assert bounds[0] > 0


def test_upper_bounds_are_inclusive():
    histogram = Histogram.over((1.0, 2.0))
    for value in (0.0, 1.0, 1.5, 2.0, 2.5):
        histogram.observe(value)
    assert histogram.counts == [2, 2, 1]


@given(st.lists(st.tuples(st.floats(0, 1e4), st.integers(1, 5))))
def test_every_value_is_counted_once(values):
    histogram = Histogram.over(STEP_BOUNDS_S)
    for value, times in values:
        histogram.observe(value, times)
    assert histogram.count == sum(times for _, times in values)
    assert histogram.total == pytest.approx(sum(value * times for value, times in values))
    for index, bound in enumerate(STEP_BOUNDS_S):
        assert sum(histogram.counts[: index + 1]) == sum(times for value, times in values if value <= bound)


def test_waiting_times_of_a_request(recorder, clock):
    request = submit(recorder)
    clock.ms += 100
    request.started(clock.monotonic_ns())
    clock.ms += 400
    request.started(clock.monotonic_ns())  # the second step of its prompt
    request.drew(1, clock.monotonic_ns(), num_cached=3)
    clock.ms += 20
    request.drew(1, clock.monotonic_ns())
    clock.ms += 30
    request.finished("length")
    metrics = recorder.metrics["m"]
    assert (metrics.queue_s.count, metrics.queue_s.total) == (1, pytest.approx(0.1))
    assert (metrics.first_token_s.count, metrics.first_token_s.total) == (1, pytest.approx(0.5))
    assert (metrics.inter_token_s.count, metrics.inter_token_s.total) == (1, pytest.approx(0.02))
    assert (metrics.request_s.count, metrics.request_s.total) == (1, pytest.approx(0.55))
    assert (metrics.prompt_tokens, metrics.cached_tokens, metrics.generated_tokens) == (5, 3, 2)
    assert metrics.finished == {"length": 1}


def test_tokens_of_one_step_share_its_time(recorder, clock):
    request = submit(recorder)
    request.drew(1, clock.monotonic_ns())
    clock.ms += 30
    request.drew(3, clock.monotonic_ns())
    histogram = recorder.metrics["m"].inter_token_s
    assert (histogram.count, histogram.total) == (3, pytest.approx(0.03))
    assert histogram.counts[STEP_BOUNDS_S.index(0.01)] == 3


def test_there_are_as_many_gaps_as_tokens_that_follow_another(recorder, clock):
    for counts in ([1, 1, 1], [4], [2, 3]):
        request = submit(recorder)
        for count in counts:
            clock.ms += 10
            request.drew(count, clock.monotonic_ns())
    metrics = recorder.metrics["m"]
    assert metrics.generated_tokens == 12
    assert metrics.first_token_s.count == 3
    assert metrics.inter_token_s.count == 12 - 3


def test_a_request_that_ends_before_its_first_token_has_no_prompt_tokens(recorder, clock):
    request = submit(recorder)
    clock.ms += 10
    request.finished("cancelled")
    metrics = recorder.metrics["m"]
    assert (metrics.prompt_tokens, metrics.first_token_s.count, metrics.queue_s.count) == (0, 0, 0)
    assert (metrics.finished, metrics.request_s.count) == ({"cancelled": 1}, 1)


def test_preemptions_shifts_and_drafts_are_counted(recorder):
    request = submit(recorder)
    request.preempted()
    request.preempted()
    request.shifted(100)
    request.drafted(4, 3)
    metrics = recorder.metrics["m"]
    assert (metrics.num_preemptions, metrics.num_shifts) == (2, 1)
    assert (metrics.drafted_tokens, metrics.accepted_tokens) == (4, 3)


def test_steps_are_measured_phase_by_phase(recorder, clock):
    run_step(recorder, clock, 1, 2, 45, 3)
    metrics = recorder.metrics["m"]
    assert metrics.step_s.total == pytest.approx(0.051)
    assert metrics.device_busy_s == pytest.approx(0.045)
    assert (metrics.prefill_tokens, metrics.decode_tokens) == (10, 1)
    (step,) = recorder.trace().steps
    assert (step.schedule_ns, step.build_ns, step.run_ns, step.commit_ns) == (1 * MS, 2 * MS, 45 * MS, 3 * MS)
    assert step.end_ns == clock.monotonic_ns()


def test_a_step_that_breaks_off_is_measured_too(recorder, clock):
    run_step(recorder, clock, 1, 2)
    assert recorder.metrics["m"].step_s.count == 1
    (step,) = recorder.trace().steps
    assert (step.run_ns, step.commit_ns) == (0, 0)


def test_totals_of_a_model_go_on_when_it_is_loaded_again(recorder):
    submit(recorder).finished("stop")
    recorder.add_model("m")
    assert recorder.metrics["m"].finished == {"stop": 1}
