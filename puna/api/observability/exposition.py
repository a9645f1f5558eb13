"""What the engine and the HTTP side count, in Prometheus' text format."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from typing import NamedTuple, TypeVar

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

import puna
from puna.api.observability.http_counts import HttpCounts
from puna.daemon.runtime import Observation
from puna.engine.observation.metrics import Histogram, ModelMetrics
from puna.engine.observation.stats import EngineStats, ModelStats

T = TypeVar("T")


class _Family(NamedTuple):
    """One metric of each model; `attribute` is a field of ModelMetrics or ModelStats."""

    name: str
    attribute: str
    help: str


_GAUGES = (
    _Family("puna_requests_running", "num_running", "Requests that have KV blocks and take part in steps."),
    _Family("puna_requests_waiting", "num_waiting", "Requests in the queue, preempted ones among them."),
    _Family("puna_kv_committed_bytes", "committed_kv_bytes", "Memory of KV blocks, whatever their state."),
    _Family("puna_kv_reserved_bytes", "reserved_kv_bytes", "Addresses of KV blocks, with or without memory."),
    _Family("puna_kv_guaranteed_bytes", "guaranteed_kv_bytes", "KV memory that is guaranteed to the model."),
    _Family(
        "puna_weight_bytes", "weight_bytes", "Weights; while the model sleeps, the system may take them."
    ),
)
_COUNTERS = (
    _Family(
        "puna_prompt_tokens",
        "prompt_tokens",
        "Prompt tokens, computed or found in the cache; counted with a request's first token.",
    ),
    _Family(
        "puna_cached_prompt_tokens", "cached_tokens", "Those of puna_prompt_tokens_total found in the cache."
    ),
    _Family(
        "puna_restored_prompt_tokens",
        "restored_tokens",
        "Those of puna_cached_prompt_tokens_total read from disk for the request.",
    ),
    _Family(
        "puna_computed_prompt_tokens",
        "computed_tokens",
        "Prompt tokens computed, again where a request had to start over.",
    ),
    _Family("puna_generated_tokens", "generated_tokens", "Tokens drawn, stop tokens among them."),
    _Family("puna_speculation_drafted_tokens", "drafted_tokens", "Tokens drafted and verified."),
    _Family("puna_speculation_accepted_tokens", "accepted_tokens", "Drafted tokens that were right."),
    _Family(
        "puna_preemptions", "num_preemptions", "Times that a request gave its KV blocks back and waited."
    ),
    _Family("puna_context_shifts", "num_shifts", "Times that a full context discarded its older half."),
    _Family(
        "puna_device_busy_seconds", "device_busy_s", "Time that the device computed: models and sampling."
    ),
)
_HISTOGRAMS = (
    _Family(
        "puna_step_duration_seconds", "step_s", "One step of the engine, from scheduling to its outputs."
    ),
    _Family(
        "puna_queue_time_seconds",
        "queue_s",
        "From a request's submission to the engine until its first step.",
    ),
    _Family(
        "puna_time_to_first_token_seconds",
        "first_token_s",
        "From a request's submission to the engine, time in the queue included, until its first token.",
    ),
    _Family(
        "puna_inter_token_latency_seconds",
        "inter_token_s",
        "Between two tokens of a request; tokens of one step share the time since the one before.",
    ),
    _Family(
        "puna_request_duration_seconds",
        "request_s",
        "From a request's submission to the engine until its end, whatever the reason.",
    ),
)


CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""Every scraper knows this version of the format."""


def encode(observation: Observation, http: HttpCounts) -> bytes:
    """All metrics at one moment."""
    return generate_latest(_Moment(observation, http))


class _Moment(Collector):
    def __init__(self, observation: Observation, http: HttpCounts) -> None:
        self._observation = observation
        self._http = http

    def collect(self) -> Iterator[Metric]:
        yield from _of_daemon(self._observation)
        yield from _of_http(self._http)
        # Without a worker, there are no samples: zeros would be taken for what the next one begins with.
        yield from _of_engine(self._observation.stats or EngineStats(0, []), self._observation.model_names)


def _of_daemon(observation: Observation) -> Iterator[Metric]:
    build = GaugeMetricFamily("puna_build_info", "Always 1; the version is a label.", labels=["version"])
    build.add_metric([puna.__version__], 1)
    yield build
    yield GaugeMetricFamily(
        "puna_worker_up", "Whether the worker answers.", value=observation.stats is not None
    )
    yield CounterMetricFamily(
        "puna_worker_starts",
        "Workers started; what the engine counts begins at 0 with each.",
        value=observation.num_worker_starts,
    )


def _of_http(http: HttpCounts) -> Iterator[Metric]:
    finished = CounterMetricFamily(
        "puna_http_requests",
        "HTTP requests that ended; status 499: the client left before the reply began.",
        labels=["route", "status"],
    )
    for (route, status), count in sorted(http.finished.items()):
        finished.add_metric([route, str(status)], count)
    in_progress = GaugeMetricFamily(
        "puna_http_requests_in_progress",
        "HTTP requests that have not ended, open streams among them.",
        labels=["route"],
    )
    for route, count in sorted(http.in_progress.items()):
        in_progress.add_metric([route], count)
    yield finished
    yield in_progress


def _of_engine(stats: EngineStats, names: Mapping[str, str]) -> Iterator[Metric]:
    yield from _shared_memory(stats)
    yield from _gauges(stats, names)
    # Files with other weights may come to bear the same name: they then share their series.
    metrics = _by_name(stats.metrics.items(), names)
    yield from _counters(metrics)
    for name, attribute, text in _HISTOGRAMS:
        histogram = HistogramMetricFamily(name, text, labels=["model"])
        for model, group in metrics.items():
            histogram.add_metric([model], *_buckets([getattr(one, attribute) for one in group]))
        yield histogram


def _shared_memory(stats: EngineStats) -> Iterator[Metric]:
    """Samples only of what there is: a worker, and KV on disk."""
    has_worker, disk = stats.kv_limit_bytes > 0, stats.disk
    for name, value, text in (
        (
            "puna_kv_limit_bytes",
            stats.kv_limit_bytes,
            "Most memory that KV of all models and leases may take.",
        ),
        (
            "puna_memory_limit_bytes",
            stats.memory_limit_bytes,
            "Most memory that weights and KV of all models may take.",
        ),
        ("puna_kv_leased_bytes", stats.leased_bytes, "KV memory that is lent to other engines."),
    ):
        yield GaugeMetricFamily(name, text, value=value if has_worker else None)
    yield GaugeMetricFamily("puna_kv_disk_bytes", "KV on disk.", value=disk.num_bytes if disk else None)
    yield GaugeMetricFamily(
        "puna_kv_disk_limit_bytes", "Most that KV on disk may take.", value=disk.limit_bytes if disk else None
    )
    yield CounterMetricFamily(
        "puna_kv_restored_tokens",
        "Tokens whose KV was read from disk.",
        value=disk.restored_tokens if disk else None,
    )
    yield CounterMetricFamily(
        "puna_kv_saved_tokens",
        "Tokens whose KV was written to disk.",
        value=disk.saved_tokens if disk else None,
    )


def _gauges(stats: EngineStats, names: Mapping[str, str]) -> Iterator[Metric]:
    resident: dict[str, list[ModelStats]] = {names.get(model_id, model_id): [] for model_id in stats.metrics}
    resident |= _by_name(((model.model_id, model) for model in stats.models), names)
    loaded = GaugeMetricFamily(
        "puna_model_loaded", "Whether the model is resident; 0: it was, or sleeps.", labels=["model"]
    )
    blocks = GaugeMetricFamily(
        "puna_kv_blocks",
        "KV blocks with memory: used by requests, cached (can be found again), or spare; of layers that see "
        "all tokens, or a window of so many.",
        labels=["model", "window", "state"],
    )
    states = GaugeMetricFamily(
        "puna_kv_state_bytes",
        "States of recurrent layers: used by requests, or cached, which are snapshots.",
        labels=["model", "state"],
    )
    for model, group in resident.items():
        for state, num_bytes in _state_bytes(group).items():
            states.add_metric([model, state], num_bytes)
        loaded.add_metric([model], any(not one.is_asleep for one in group))
        for (window, state), count in _block_states(group).items():
            blocks.add_metric([model, window, state], count)
    yield loaded
    yield blocks
    yield states
    for name, attribute, text in _GAUGES:
        gauge = GaugeMetricFamily(name, text, labels=["model"])
        for model, group in resident.items():
            gauge.add_metric([model], sum(getattr(one, attribute) for one in group))
        yield gauge


def _by_name(models: Iterable[tuple[str, T]], names: Mapping[str, str]) -> dict[str, list[T]]:
    groups: dict[str, list[T]] = {}
    for model_id, one in models:
        groups.setdefault(names.get(model_id, model_id), []).append(one)
    return groups


def _block_states(models: Iterable[ModelStats]) -> Counter[tuple[str, str]]:
    """By window and state; a model that sleeps has none, of layers without a window."""
    counts: Counter[tuple[str, str]] = Counter({("none", state): 0 for state in ("used", "cached", "spare")})
    for group in (group for model in models for group in model.kv_groups if not group.is_state):
        window = "none" if group.window is None else str(group.window)
        counts[window, "used"] += group.num_used
        counts[window, "cached"] += group.num_cached
        counts[window, "spare"] += group.num_spare
    return counts


def _state_bytes(models: Iterable[ModelStats]) -> Counter[str]:
    """By state; empty without recurrent layers."""
    counts: Counter[str] = Counter()
    for group in (group for model in models for group in model.kv_groups if group.is_state):
        counts["used"] += group.num_used * group.block_bytes
        counts["cached"] += group.num_cached * group.block_bytes
    return counts


def _counters(metrics: Mapping[str, list[ModelMetrics]]) -> Iterator[Metric]:
    for name, attribute, text in _COUNTERS:
        counter = CounterMetricFamily(name, text, labels=["model"])
        for model, group in metrics.items():
            counter.add_metric([model], sum(getattr(one, attribute) for one in group))
        yield counter
    computed = CounterMetricFamily(
        "puna_computed_tokens",
        "Tokens that went through the model: of prompts and of what preempted requests repeat (prefill), or "
        "one for each token drawn, with drafts (decode).",
        labels=["model", "phase"],
    )
    finished = CounterMetricFamily(
        "puna_requests_finished", "Requests that ended, by reason.", labels=["model", "reason"]
    )
    for model, group in metrics.items():
        computed.add_metric([model, "prefill"], sum(one.prefill_tokens for one in group))
        computed.add_metric([model, "decode"], sum(one.decode_tokens for one in group))
        for reason in sorted({reason for one in group for reason in one.finished}):
            finished.add_metric([model, reason], sum(one.finished.get(reason, 0) for one in group))
    yield computed
    yield finished


def _buckets(histograms: list[Histogram]) -> tuple[list[tuple[str, float]], float]:
    """Cumulative counts by upper bound, and the sum."""
    bounds = [*map(str, histograms[0].bounds), "+Inf"]
    counts = [sum(column) for column in zip(*(one.counts for one in histograms), strict=True)]
    return list(zip(bounds, accumulate(counts), strict=True)), sum(one.total for one in histograms)
