"""Records events of the engine in its counters and its trace."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from puna.engine.observation.metrics import ModelMetrics
from puna.engine.observation.trace import EngineTrace, EventKind, RequestEvent, StepRecord, TraceRing
from puna.engine.request import FinishReason

_NUM_PHASES = 4  # schedule, build, run, commit


class Recorder:
    """One per engine."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """clock: seconds."""
        self.metrics: dict[str, ModelMetrics] = {}
        """By model id, of every model that ever was resident."""
        self.since = datetime.now(UTC)
        self._clock = clock
        self._ring = TraceRing(self.now_ns)
        self._marks: list[int] = []

    def now_ns(self) -> int:
        """The engine's clock, in nanoseconds."""
        return round(self._clock() * 1e9)

    def add_model(self, model_id: str) -> None:
        """Also for one that was here before: its totals go on."""
        self.metrics.setdefault(model_id, ModelMetrics())

    def submitted(self, request_id: str, model_id: str, num_prompt: int) -> RequestRecord:
        """A request for a resident model arrived."""
        return RequestRecord(
            request_id, model_id, num_prompt, self.metrics[model_id], self._ring, self.now_ns
        )

    def begin_step(self) -> None:
        self._marks = [self.now_ns()]

    def mark(self) -> int:
        """A phase of the step is over: schedule, build, run, commit, in this order. Returns now."""
        now_ns = self.now_ns()
        self._marks.append(now_ns)
        return now_ns

    def suspend_step(self, model_id: str) -> None:
        """It goes on later, when it runs for the rest of its time."""
        self.metrics[model_id].device_busy_s += (self.now_ns() - self._marks[-1]) * 1e-9

    def end_step(self, model_id: str, num_sequences: int, prefill_tokens: int, decode_tokens: int) -> None:
        """The step is over. Phases that it did not come to took no time."""
        marks = self._marks
        marks += [self.now_ns()] * (_NUM_PHASES + 1 - len(marks))
        start, scheduled, built, ran, committed = marks
        metrics = self.metrics[model_id]
        metrics.prefill_tokens += prefill_tokens
        metrics.decode_tokens += decode_tokens
        metrics.device_busy_s += (ran - built) * 1e-9
        metrics.step_s.observe((committed - start) * 1e-9)
        self._ring.add_step(
            StepRecord(
                model_id,
                num_sequences,
                prefill_tokens,
                decode_tokens,
                start,
                scheduled - start,
                built - scheduled,
                ran - built,
                committed - ran,
            )
        )

    def trace(self, seconds: float | None = None) -> EngineTrace:
        """The events of the last `seconds`; None: all that are still known."""
        return self._ring.cut(seconds)


class RequestRecord:
    """The life of one request. All times are of the engine's clock, in nanoseconds."""

    __slots__ = (
        "_in_generation",
        "_metrics",
        "_prompt",
        "_ring",
        "first_token_ns",
        "last_token_ns",
        "model_id",
        "now_ns",
        "num_drawn",
        "num_restored",
        "request_id",
        "started_ns",
        "submitted_ns",
    )

    def __init__(
        self,
        request_id: str,
        model_id: str,
        num_prompt: int,
        metrics: ModelMetrics,
        ring: TraceRing,
        now_ns: Callable[[], int],
    ) -> None:
        self.now_ns = now_ns
        self.request_id = request_id
        self.model_id = model_id
        self.num_drawn = 0
        self.num_restored = 0
        """Tokens whose KV was read from disk for it."""
        self.submitted_ns = self.now_ns()
        self.started_ns = 0
        """First step; 0: not yet."""
        self.first_token_ns = self.last_token_ns = 0
        self._prompt = num_prompt
        self._in_generation = False
        self._metrics = metrics
        self._ring = ring
        self._event("queued", self.submitted_ns, num_prompt)

    def admitted(self, num_cached: int) -> None:
        """It runs from here on; the KV of so many of its tokens was found."""
        self._event("admitted", self.now_ns(), num_cached)

    def started(self, now_ns: int) -> None:
        """A step that it takes part in begins; only the first time counts."""
        if not self.started_ns:
            self.started_ns = now_ns
            self._metrics.queue_s.observe((now_ns - self.submitted_ns) * 1e-9)

    def computed(self, num_tokens: int) -> None:
        """A step computed so many tokens of its prompt."""
        self._metrics.computed_tokens += num_tokens

    def drew(self, num_tokens: int, now_ns: int, num_cached: int = 0) -> None:
        """A step brought it so many tokens. num_cached: of its prompt, looked at with the first token."""
        since_ns, num_gaps = self.last_token_ns, num_tokens
        if not self._in_generation:
            self._in_generation = True
            self._event("token", now_ns, self.num_drawn + num_tokens)
            if not since_ns:
                self._first_token(now_ns, num_cached)
                since_ns, num_gaps = now_ns, num_tokens - 1
        self.last_token_ns = now_ns
        self.num_drawn += num_tokens
        metrics = self._metrics
        metrics.generated_tokens += num_tokens
        if num_gaps:
            metrics.inter_token_s.observe((now_ns - since_ns) * 1e-9 / num_gaps, num_gaps)

    def _first_token(self, now_ns: int, num_cached: int) -> None:
        self.first_token_ns = now_ns
        self._metrics.prompt_tokens += self._prompt
        self._metrics.cached_tokens += num_cached
        self._metrics.restored_tokens += min(self.num_restored, num_cached)
        self._metrics.first_token_s.observe((now_ns - self.submitted_ns) * 1e-9)

    def drafted(self, num_drafted: int, num_accepted: int) -> None:
        """A step verified so many drafts."""
        self._metrics.drafted_tokens += num_drafted
        self._metrics.accepted_tokens += num_accepted

    def preempted(self) -> None:
        self._in_generation = False
        self._metrics.num_preemptions += 1
        self._event("preempted", self.now_ns(), self.num_drawn)

    def shifted(self, num_discarded: int) -> None:
        self._metrics.num_shifts += 1
        self._event("shifted", self.now_ns(), num_discarded)

    def finished(self, reason: FinishReason) -> int:
        """Returns now."""
        now_ns = self.now_ns()
        metrics = self._metrics
        metrics.finished[reason] = metrics.finished.get(reason, 0) + 1
        metrics.request_s.observe((now_ns - self.submitted_ns) * 1e-9)
        event = RequestEvent(now_ns, "finished", self.request_id, self.model_id, self.num_drawn, reason)
        self._ring.add_event(event)
        return now_ns

    def _event(self, kind: EventKind, at_ns: int, num_tokens: int) -> None:
        self._ring.add_event(RequestEvent(at_ns, kind, self.request_id, self.model_id, num_tokens))
