"""GET /debug/trace: Chrome trace events, as Perfetto reads them."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from puna.api.observability.chrome_trace import encode
from puna.engine.observation.trace import EngineTrace, RequestEvent, StepRecord

pytestmark = pytest.mark.native

US = 1000
PID = 4711


def at(
    microseconds: int, kind: Any, request: str = "1", num_tokens: int = 0, reason: str = ""
) -> RequestEvent:
    return RequestEvent(microseconds * US, kind, request, "digest-a", num_tokens, reason)


def step(start: int, model_id: str = "digest-a", prefill: int = 0, decode: int = 1) -> StepRecord:
    durations = [microseconds * US for microseconds in (1, 2, 34, 5)]
    return StepRecord(model_id, 1, prefill, decode, start * US, *durations)


TRACE = EngineTrace(
    pid=PID,
    begin_ns=100 * US,
    end_ns=1000 * US,
    steps=[step(100, prefill=20, decode=0), step(200), step(300, "digest-b"), step(400, prefill=5, decode=2)],
    events=[
        at(100, "queued", num_tokens=20),
        at(110, "admitted", num_tokens=16),
        at(120, "token", "0", 9),  # queued before the trace begins
        at(142, "token", num_tokens=1),
        at(200, "preempted", num_tokens=3),
        at(250, "admitted", num_tokens=16),
        at(242, "finished", "0", 10, "stop"),
        at(290, "token", num_tokens=4),
        at(300, "shifted", num_tokens=512),
        at(350, "finished", num_tokens=6, reason="length"),
        at(900, "queued", "2"),  # goes on
    ],
)


@pytest.fixture
def events(client, runtime) -> list[dict]:
    runtime.engine_trace = TRACE
    runtime.observation.model_names["digest-a"] = "a:latest"
    reply = client.get("/debug/trace")
    assert reply.status_code == 200
    assert reply.headers["content-type"].startswith("application/json")
    assert "puna-trace.json" in reply.headers["content-disposition"]
    return reply.json()["traceEvents"]


def test_every_event_has_what_its_phase_needs(events):
    needed = {
        "M": {"args"},
        "X": {"ts", "dur", "cat"},
        "i": {"ts", "s", "cat"},
        "b": {"ts", "id", "cat"},
        "e": {"ts", "id", "cat"},
    }
    assert {event["ph"] for event in events} == set(needed)
    for event in events:
        assert event.keys() >= {"ph", "pid", "tid", "name"} | needed[event["ph"]]
        assert event["pid"] == PID
        if event["ph"] != "M":
            assert 100 <= event["ts"] <= 1000
            assert event.get("dur", 0) >= 0


def test_processes_and_threads_have_names(events):
    names = {(event["name"], event["tid"]): event["args"]["name"] for event in events if event["ph"] == "M"}
    assert names == {
        ("process_name", 0): "puna worker",
        ("thread_name", 1): "steps of a:latest",
        ("thread_name", 2): "steps of digest-b",
    }


def test_steps_and_their_phases(events):
    spans = [event for event in events if event["ph"] == "X"]
    assert [(span["name"], span["tid"], span["ts"], span["dur"]) for span in spans[:5]] == [
        ("prefill", 1, 100, 42),
        ("schedule", 1, 100, 1),
        ("build", 1, 101, 2),
        ("run", 1, 103, 34),
        ("commit", 1, 137, 5),
    ]
    assert spans[0]["args"] == {"sequences": 1, "prefill_tokens": 20, "decode_tokens": 0}
    assert [(span["name"], span["tid"]) for span in spans[5::5]] == [
        ("decode", 1),
        ("decode", 2),
        ("mixed", 1),
    ]


def spans_of(events: list[dict], request: str) -> list[tuple[str, float, float]]:
    """(name, begin, end), in the order of their beginnings; asserts that they are nested."""
    spans, stack = [], []
    for event in events:
        if event.get("id") == request and event["ph"] == "b":
            stack.append((event["name"], event["ts"]))
        elif event.get("id") == request and event["ph"] == "e":
            name, begin = stack.pop()
            assert event["name"] == name
            spans.insert(0, (name, begin, event["ts"]))  # outer ones end last
    assert not stack
    return sorted(spans, key=lambda span: (span[1], -span[2]))


def test_the_life_of_a_request(events):
    assert spans_of(events, "1") == [
        ("request 1", 100, 350),
        ("queued", 100, 110),
        ("prefill", 110, 142),
        ("decode", 142, 200),
        ("queued", 200, 250),
        ("prefill", 250, 290),
        ("decode", 290, 350),
    ]


def test_a_life_that_is_cut_at_the_ends_of_the_trace(events):
    assert spans_of(events, "0") == [("request 0", 100, 242), ("decode", 120, 242)]
    assert spans_of(events, "2") == [("request 2", 900, 1000), ("queued", 900, 1000)]


def test_preemptions_and_shifts_are_marked(events):
    marks = [(event["name"], event["ts"], event["args"]) for event in events if event["ph"] == "i"]
    assert marks == [
        ("preempted", 200, {"request": "1", "tokens": 3}),
        ("shifted", 300, {"request": "1", "tokens": 512}),
    ]


def test_the_end_says_why(events):
    (begin,) = (event for event in events if event["ph"] == "b" and event["name"] == "request 1")
    assert begin["args"] == {"tokens": 6, "finish_reason": "length"}
    assert Counter(event["ph"] for event in events)["b"] == Counter(event["ph"] for event in events)["e"]


@given(st.integers(0, 2**60))
def test_no_nanosecond_is_lost(ns):
    """Perfetto multiplies by 1000 and cuts off; then phases must neither overlap nor leave their step."""
    duration = ns % 1_000_003
    record = StepRecord("m", 1, 0, 1, ns % 2**50, duration, 1, duration + 1, 0)
    trace = EngineTrace(PID, 0, record.end_ns, [record], [])
    spans = [e for e in json.loads(encode(trace, {}))["traceEvents"] if e["ph"] == "X"]
    times = [(int(span["ts"] * 1000), int(span["dur"] * 1000)) for span in spans]
    (begin, duration), *phases = times
    assert (begin, begin + duration) == (record.start_ns, record.end_ns)
    for phase_begin, phase_duration in phases:
        assert phase_begin == begin
        assert phase_duration > 0
        begin += phase_duration
    assert begin == record.end_ns


def test_without_a_worker_there_is_nothing(client, runtime):
    assert client.get("/debug/trace").json() == {"traceEvents": [], "displayTimeUnit": "ms"}
    assert runtime.trace_seconds == [None]


def test_the_last_seconds(client, runtime):
    assert client.get("/debug/trace?seconds=2.5").status_code == 200
    assert runtime.trace_seconds == [2.5]


@pytest.mark.parametrize("seconds", ["", "ten", "0", "-1", "nan", "inf"])
def test_bad_seconds_are_refused(client, runtime, seconds):
    reply = client.get(f"/debug/trace?seconds={seconds}")
    assert reply.status_code == 400
    assert reply.json() == {"error": f"seconds must be a positive number, not {seconds!r}"}
    assert runtime.trace_seconds == []


def test_a_worker_that_hangs(client, runtime):
    runtime.worker_hangs = True
    assert client.get("/debug/trace").status_code == 503
