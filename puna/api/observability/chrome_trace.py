"""The engine's timeline as Chrome trace events, which Perfetto and chrome://tracing show."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from puna.engine.observation.trace import EngineTrace, RequestEvent, StepRecord

_Event = dict[str, Any]
_CATEGORY = "request"
_SPAN_AFTER = {"queued": "queued", "admitted": "prefill", "token": "decode", "preempted": "queued"}
"""What a request does from an event on; names of the spans on its track."""


def encode(trace: EngineTrace | None, names: Mapping[str, str]) -> bytes:
    """The JSON file. names: of models, by id; None: there is no worker, so nothing happened.

    Times are microseconds of the monotonic clock. Each model is a thread of the worker, with its steps and
    their phases; each request is an asynchronous track with what it was doing.
    """
    events = [] if trace is None else list(_events(trace, names))
    return msgspec.json.encode({"traceEvents": events, "displayTimeUnit": "ms"})


def _events(trace: EngineTrace, names: Mapping[str, str]) -> Iterator[_Event]:
    model_ids = dict.fromkeys(
        [*(step.model_id for step in trace.steps), *(event.model_id for event in trace.events)]
    )
    threads = {model_id: number for number, model_id in enumerate(model_ids, 1)}
    yield _metadata(trace.pid, 0, "process_name", "puna worker")
    for model_id, thread in threads.items():
        yield _metadata(trace.pid, thread, "thread_name", f"steps of {names.get(model_id, model_id)}")
    for step in trace.steps:
        yield from _step(step, {"pid": trace.pid, "tid": threads[step.model_id]})
    for event in trace.events:
        if event.kind in ("preempted", "shifted"):
            yield _instant(event, {"pid": trace.pid, "tid": threads[event.model_id]})
    by_request: dict[str, list[RequestEvent]] = {}
    for event in trace.events:
        by_request.setdefault(event.request_id, []).append(event)
    for request in by_request.values():
        yield from _life(request, trace, {"pid": trace.pid, "tid": threads[request[0].model_id]})


def _metadata(pid: int, tid: int, what: str, name: str) -> _Event:
    return {"ph": "M", "pid": pid, "tid": tid, "name": what, "args": {"name": name}}


def _step(step: StepRecord, track: _Event) -> Iterator[_Event]:
    args = {
        "sequences": step.num_sequences,
        "prefill_tokens": step.prefill_tokens,
        "decode_tokens": step.decode_tokens,
    }
    kind = (
        "mixed"
        if step.prefill_tokens and step.decode_tokens
        else "prefill"
        if step.prefill_tokens
        else "decode"
    )
    yield _span(kind, step.start_ns, step.end_ns - step.start_ns, track, args)
    begin_ns = step.start_ns
    for phase in ("schedule", "build", "run", "commit"):
        duration_ns = getattr(step, f"{phase}_ns")
        if duration_ns:
            yield _span(phase, begin_ns, duration_ns, track, {})
        begin_ns += duration_ns


def _span(name: str, start_ns: int, duration_ns: int, track: _Event, args: _Event) -> _Event:
    return {
        "ph": "X",
        "cat": "step",
        "name": name,
        "ts": _us(start_ns),
        "dur": _us(duration_ns),
        **track,
        "args": args,
    }


def _instant(event: RequestEvent, track: _Event) -> _Event:
    args = {"request": event.request_id, "tokens": event.num_tokens}
    return {
        "ph": "i",
        "s": "t",
        "cat": _CATEGORY,
        "name": event.kind,
        "ts": _us(event.at_ns),
        **track,
        "args": args,
    }


def _life(events: list[RequestEvent], trace: EngineTrace, track: _Event) -> Iterator[_Event]:
    """The spans of one request; what had begun before the trace, or goes on after it, is cut there."""
    common = {"cat": _CATEGORY, "id": events[0].request_id, **track}
    name = f"request {events[0].request_id}"
    last = events[-1]
    end_ns = last.at_ns if last.kind == "finished" else trace.end_ns
    begin_ns = events[0].at_ns if events[0].kind == "queued" else trace.begin_ns
    args = {"tokens": last.num_tokens, "finish_reason": last.finish_reason} if last.kind == "finished" else {}
    yield {"ph": "b", "name": name, "ts": _us(begin_ns), **common, "args": args}
    for event, until_ns in zip(events, _ends(events, end_ns), strict=True):
        if span := _SPAN_AFTER.get(event.kind):
            span_args = {"tokens": event.num_tokens}
            yield {"ph": "b", "name": span, "ts": _us(event.at_ns), **common, "args": span_args}
            yield {"ph": "e", "name": span, "ts": _us(until_ns), **common}
    yield {"ph": "e", "name": name, "ts": _us(end_ns), **common}


def _ends(events: Iterable[RequestEvent], end_ns: int) -> list[int]:
    """For each event, when the next one of those that begin or end a span happened."""
    ends: list[int] = []
    for event in reversed(list(events)):
        ends.append(end_ns)
        if event.kind != "shifted":
            end_ns = event.at_ns
    return ends[::-1]


def _us(ns: int) -> float:
    """Microseconds that, times 1000 and cut off, are the same nanoseconds again: Perfetto reads them so, and
    drops slices that overlap by one.
    """
    us = ns / 1000
    return us if int(us * 1000) == ns else math.nextafter(us, math.inf)
