"""The latest events, for a timeline: a ring of steps, and one of events in the lives of requests."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from typing import Literal

import msgspec

MAX_STEPS = 8192
MAX_EVENTS = 16384
"""Full rings take a few megabytes, here and in the message that carries them."""

EventKind = Literal["queued", "admitted", "token", "preempted", "shifted", "finished"]
"""token: the first one after an admission."""


class StepRecord(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One step: when, what, and how long each of its parts took. Monotonic clock."""

    model_id: str
    num_sequences: int
    prefill_tokens: int
    decode_tokens: int
    start_ns: int
    schedule_ns: int
    build_ns: int
    run_ns: int
    commit_ns: int

    @property
    def end_ns(self) -> int:
        durations = self.schedule_ns + self.build_ns + self.run_ns + self.commit_ns
        return self.start_ns + durations


class RequestEvent(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Something that happened to a request."""

    at_ns: int
    kind: EventKind
    request_id: str
    model_id: str
    num_tokens: int
    """queued: of the prompt; admitted: found in the cache; shifted: discarded; else: drawn so far."""
    finish_reason: str = ""
    """finished: why."""


class EngineTrace(msgspec.Struct):
    """The recent past."""

    pid: int
    """Of the process that the engine runs in."""
    begin_ns: int
    """Earlier events have been overwritten."""
    end_ns: int
    steps: list[StepRecord]
    events: list[RequestEvent]


class TraceRing:
    """Keeps the latest steps and events."""

    def __init__(self, now_ns: Callable[[], int]) -> None:
        """now_ns: the clock of all that is added, in nanoseconds."""
        self._steps: deque[StepRecord] = deque(maxlen=MAX_STEPS)
        self._events: deque[RequestEvent] = deque(maxlen=MAX_EVENTS)
        self._now_ns = now_ns
        self._begin_ns = now_ns()
        self.add_step = self._steps.append
        self.add_event = self._events.append

    def cut(self, seconds: float | None = None) -> EngineTrace:
        """The events of the last `seconds`; None: all that are still known."""
        now_ns = self._now_ns()
        begin_ns = self._known_since_ns()
        if seconds is not None:
            begin_ns = max(begin_ns, now_ns - int(seconds * 1e9))
        return EngineTrace(
            pid=os.getpid(),
            begin_ns=begin_ns,
            end_ns=now_ns,
            steps=[step for step in self._steps if step.start_ns >= begin_ns],
            events=[event for event in self._events if event.at_ns >= begin_ns],
        )

    def _known_since_ns(self) -> int:
        """Since when nothing has fallen out of a ring."""
        starts = [self._begin_ns]
        if len(self._steps) == MAX_STEPS:
            starts.append(self._steps[0].start_ns)
        if len(self._events) == MAX_EVENTS:
            starts.append(self._events[0].at_ns)
        return max(starts)
