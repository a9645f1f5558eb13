"""Counters of the engine: plain numbers, cheap enough for every token of every step."""

from __future__ import annotations

from bisect import bisect_left

import msgspec

LATENCY_BOUNDS_S = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
"""For what a user waits for once; those of other servers, so that dashboards can be compared."""
STEP_BOUNDS_S = (
    *(0.001, 0.0025, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.075),
    *(0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 10.0),
)
"""For what happens once per step."""


class Histogram(msgspec.Struct, gc=False):
    """How often a value fell into which of some fixed ranges."""

    bounds: tuple[float, ...]
    """Upper ends of the ranges, inclusive, ascending; the last range has none."""
    counts: list[int]
    """[len(bounds) + 1], not cumulative."""
    total: float = 0.0
    """Sum of all values."""

    @classmethod
    def over(cls, bounds: tuple[float, ...]) -> Histogram:
        """An empty one."""
        return cls(bounds, [0] * (len(bounds) + 1))

    @property
    def count(self) -> int:
        """Values observed."""
        return sum(self.counts)

    def observe(self, value: float, times: int = 1) -> None:
        self.counts[bisect_left(self.bounds, value)] += times
        self.total += value * times


def _latencies() -> Histogram:
    return Histogram.over(LATENCY_BOUNDS_S)


def _steps() -> Histogram:
    return Histogram.over(STEP_BOUNDS_S)


class ModelMetrics(msgspec.Struct, kw_only=True):
    """Totals of one model since the engine began; they outlive the model's unloading."""

    prompt_tokens: int = 0
    """Of requests that came to their first token."""
    cached_tokens: int = 0
    """Those of them whose KV was already there."""
    restored_tokens: int = 0
    """Those of these that were read from disk for the request."""
    computed_tokens: int = 0
    """Of prompts: whatever was computed, more than once where requests had to start over."""
    generated_tokens: int = 0
    """Drawn; stop tokens count."""
    prefill_tokens: int = 0
    """Computed in steps that had more than one token of their sequence to compute, drafts aside."""
    decode_tokens: int = 0
    """Computed one per sequence and step, or with drafts behind them."""
    drafted_tokens: int = 0
    """Drafts that were verified."""
    accepted_tokens: int = 0
    """Those of them that were right."""
    num_preemptions: int = 0
    num_shifts: int = 0
    """Times that a sequence discarded tokens because its context was full."""
    device_busy_s: float = 0.0
    """Spent in the device's program and in sampling."""
    finished: dict[str, int] = {}
    """Requests by finish reason."""
    step_s: Histogram = msgspec.field(default_factory=_steps)
    queue_s: Histogram = msgspec.field(default_factory=_latencies)
    """From submission to the first step."""
    first_token_s: Histogram = msgspec.field(default_factory=_latencies)
    """From submission to the first token."""
    inter_token_s: Histogram = msgspec.field(default_factory=_steps)
    """Between two tokens of a request; tokens of one step share the time since the step before."""
    request_s: Histogram = msgspec.field(default_factory=_latencies)
    """From submission to the end, whatever the reason."""
