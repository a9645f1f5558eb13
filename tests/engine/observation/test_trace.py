"""The rings of steps and events: what is kept, and for how long."""

from __future__ import annotations

import os

import pytest

from puna.engine.observation.recorder import Recorder
from puna.engine.observation.trace import MAX_EVENTS, MAX_STEPS
from tests.engine.observation.recording import MS, Clock, run_step, submit

pytestmark = pytest.mark.unit


def kinds(recorder: Recorder) -> list[str]:
    return [event.kind for event in recorder.trace().events]


def test_events_of_a_request_that_is_preempted(recorder: Recorder, clock: Clock):
    request = submit(recorder)
    request.admitted(0)
    request.drew(1, clock.monotonic_ns())
    request.drew(1, clock.monotonic_ns())
    request.preempted()
    request.admitted(2)
    request.drew(1, clock.monotonic_ns())
    request.shifted(7)
    request.finished("stop")
    expected = ["queued", "admitted", "token", "preempted", "admitted", "token", "shifted", "finished"]
    assert kinds(recorder) == expected
    trace = recorder.trace()
    assert [event.num_tokens for event in trace.events] == [5, 0, 1, 2, 2, 3, 7, 3]
    assert trace.events[-1].finish_reason == "stop"
    assert {(event.request_id, event.model_id) for event in trace.events} == {("r", "m")}
    assert trace.pid == os.getpid()


def test_only_the_last_seconds(recorder: Recorder, clock: Clock):
    run_step(recorder, clock, 1, 1, 1, 2)
    submit(recorder)
    clock.ms += 10_000
    run_step(recorder, clock, 1, 1, 1, 2)
    assert len(recorder.trace().steps) == 2
    trace = recorder.trace(5.0)
    assert (len(trace.steps), len(trace.events)) == (1, 0)
    assert trace.end_ns - trace.begin_ns == 5000 * MS
    assert recorder.trace(1e9).begin_ns == 1000 * MS


@pytest.mark.parametrize("full", ["steps", "events"])
def test_what_fell_out_of_one_ring_is_not_shown_of_the_other(recorder: Recorder, clock: Clock, full: str):
    """Else a request would seem to run without steps, or steps without requests."""
    run_step(recorder, clock, 1, 1, 1, 2)
    submit(recorder)
    clock.ms += 1
    since_ns = clock.monotonic_ns()
    for _ in range(MAX_STEPS if full == "steps" else MAX_EVENTS):
        if full == "steps":
            run_step(recorder, clock, 1, 1, 1, 2)
        else:
            submit(recorder)
            clock.ms += 1
    trace = recorder.trace()
    assert trace.begin_ns == since_ns
    assert (len(trace.steps), len(trace.events)) == ((MAX_STEPS, 0) if full == "steps" else (0, MAX_EVENTS))
