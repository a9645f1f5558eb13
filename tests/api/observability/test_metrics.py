"""GET /metrics: what a scraper reads, and the conventions it relies on."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

import puna
from puna.api.observability.exposition import encode
from puna.api.observability.http_counts import HttpCounts
from puna.daemon.runtime import Observation
from puna.engine.observation.metrics import ModelMetrics
from puna.engine.observation.stats import DiskStats, EngineStats, ModelStats
from puna.kv.group_stats import GroupStats
from tests.api.fake_runtime import Script

pytestmark = pytest.mark.native

BLOCK_BYTES = 100
HISTOGRAMS = {
    "puna_step_duration_seconds": "step_s",
    "puna_queue_time_seconds": "queue_s",
    "puna_time_to_first_token_seconds": "first_token_s",
    "puna_inter_token_latency_seconds": "inter_token_s",
    "puna_request_duration_seconds": "request_s",
}
Samples = dict[tuple[str, frozenset], float]


def metrics_of(number: int) -> ModelMetrics:
    """Every field has another value."""
    metrics = ModelMetrics(
        prompt_tokens=number + 1,
        cached_tokens=number + 2,
        generated_tokens=number + 3,
        prefill_tokens=number + 4,
        decode_tokens=number + 5,
        drafted_tokens=number + 8,
        accepted_tokens=number + 9,
        num_preemptions=number + 10,
        num_shifts=number + 11,
        device_busy_s=number + 0.5,
        finished={"stop": number, "length": 1},
    )
    for index, attribute in enumerate(HISTOGRAMS.values(), 1):
        getattr(metrics, attribute).observe(0.02 * number, index)
        getattr(metrics, attribute).observe(1e6)
    return metrics


def model_stats(model_id: str) -> ModelStats:
    return ModelStats(
        model_id=model_id,
        num_running=3,
        num_waiting=4,
        num_preemptions=0,
        block_bytes=BLOCK_BYTES,
        used_kv_bytes=5 * BLOCK_BYTES,
        cached_kv_bytes=2 * BLOCK_BYTES,
        committed_kv_bytes=8 * BLOCK_BYTES,
        reserved_kv_bytes=50 * BLOCK_BYTES,
        guaranteed_kv_bytes=BLOCK_BYTES,
        weight_bytes=7777,
        kv_groups=[
            GroupStats(None, BLOCK_BYTES, 5, 2, 1),
            GroupStats(512, BLOCK_BYTES, 3, 4, 0),
            GroupStats(None, 1000, 2, 7, 1, True),
        ],
    )


BUSY = Observation(
    stats=EngineStats(
        1 << 30,
        [model_stats("digest-a")],
        memory_limit_bytes=1 << 31,
        leased_bytes=4096,
        disk=DiskStats(limit_bytes=9000, num_bytes=8000, restored_tokens=16, saved_tokens=48),
        metrics={"digest-a": metrics_of(1), "digest-b": metrics_of(2)},
    ),
    num_worker_starts=2,
    model_names={"digest-a": "a:latest", "digest-b": "b:latest"},
)
NO_WORKER = Observation(stats=None, num_worker_starts=0, model_names={})


def http_counts() -> HttpCounts:
    counts = HttpCounts()
    counts.finished["/api/chat", 200] = 7
    counts.in_progress["/api/chat"] = 1
    return counts


def families(observation: Observation, http: HttpCounts | None = None) -> list[Metric]:
    return list(text_string_to_metric_families(encode(observation, http or http_counts()).decode()))


def samples(metrics: Iterable[Metric]) -> Samples:
    found: Samples = {}
    for family in metrics:
        for sample in family.samples:
            key = (sample.name, frozenset(sample.labels.items()))
            assert key not in found, f"{key} is there twice"
            found[key] = sample.value
    return found


def value(found: Samples, name: str, **labels: str) -> float:
    return found[name, frozenset(labels.items())]


def test_counters_of_each_model():
    found = samples(families(BUSY))
    offsets = {
        "prompt_tokens": 1,
        "cached_prompt_tokens": 2,
        "generated_tokens": 3,
        "speculation_drafted_tokens": 8,
        "speculation_accepted_tokens": 9,
        "preemptions": 10,
        "context_shifts": 11,
    }
    for number, model in ((1, "a:latest"), (2, "b:latest")):
        for name, offset in offsets.items():
            assert value(found, f"puna_{name}_total", model=model) == number + offset
        assert value(found, "puna_computed_tokens_total", model=model, phase="prefill") == number + 4
        assert value(found, "puna_computed_tokens_total", model=model, phase="decode") == number + 5
        assert value(found, "puna_device_busy_seconds_total", model=model) == number + 0.5
        assert value(found, "puna_requests_finished_total", model=model, reason="stop") == number
        assert value(found, "puna_requests_finished_total", model=model, reason="length") == 1


def test_gauges_of_each_model_and_of_one_that_was_unloaded():
    found = samples(families(BUSY))
    expected = {
        "puna_model_loaded": (1, 0),
        "puna_requests_running": (3, 0),
        "puna_requests_waiting": (4, 0),
        "puna_kv_committed_bytes": (800, 0),
        "puna_kv_reserved_bytes": (5000, 0),
        "puna_kv_guaranteed_bytes": (100, 0),
        "puna_weight_bytes": (7777, 0),
    }
    for name, values in expected.items():
        assert (value(found, name, model="a:latest"), value(found, name, model="b:latest")) == values
    states = {"used": (5, 3), "cached": (2, 4), "spare": (1, 0)}
    for state, counts in states.items():
        for window, count in zip(("none", "512"), counts, strict=True):
            assert value(found, "puna_kv_blocks", model="a:latest", window=window, state=state) == count
        assert value(found, "puna_kv_blocks", model="b:latest", window="none", state=state) == 0
    assert value(found, "puna_kv_state_bytes", model="a:latest", state="used") == 2000
    assert value(found, "puna_kv_state_bytes", model="a:latest", state="cached") == 7000


def test_memory_that_models_share():
    found = samples(families(BUSY))
    assert value(found, "puna_kv_limit_bytes") == 1 << 30
    assert value(found, "puna_memory_limit_bytes") == 1 << 31
    assert value(found, "puna_kv_leased_bytes") == 4096
    assert value(found, "puna_kv_disk_bytes") == 8000
    assert value(found, "puna_kv_disk_limit_bytes") == 9000
    assert value(found, "puna_kv_restored_tokens_total") == 16
    assert value(found, "puna_kv_saved_tokens_total") == 48


def test_without_a_disk_there_are_no_samples_of_it():
    found = samples(families(Observation(EngineStats(1, []), 1, {})))
    assert value(found, "puna_kv_leased_bytes") == 0
    assert not any("disk" in name or "restored" in name for name, _ in found)


def test_a_model_that_sleeps_is_not_loaded():
    asleep = model_stats("digest-a")
    asleep.is_asleep = True
    stats = EngineStats(1, [asleep], metrics={"digest-a": metrics_of(1)})
    assert value(samples(families(Observation(stats, 1, {}))), "puna_model_loaded", model="digest-a") == 0


def test_counts_of_the_daemon():
    found = samples(families(BUSY))
    assert value(found, "puna_build_info", version=puna.__version__) == 1
    assert value(found, "puna_worker_up") == 1
    assert value(found, "puna_worker_starts_total") == 2
    assert value(found, "puna_http_requests_total", route="/api/chat", status="200") == 7
    assert value(found, "puna_http_requests_in_progress", route="/api/chat") == 1


def check_histogram(family: Metric) -> None:
    """Buckets ascend in bound and count, and the last one has everything."""
    series: dict[frozenset, list[tuple[float, float]]] = {}
    counts = {}
    for sample in family.samples:
        labels = frozenset((key, text) for key, text in sample.labels.items() if key != "le")
        if sample.name.endswith("_bucket"):
            series.setdefault(labels, []).append((float(sample.labels["le"]), sample.value))
        elif sample.name.endswith("_count"):
            counts[labels] = sample.value
    assert series.keys() == counts.keys()
    for labels, buckets in series.items():
        assert buckets == sorted(buckets)
        assert [count for _, count in buckets] == sorted(count for _, count in buckets)
        assert buckets[-1] == (float("inf"), counts[labels])


def test_histograms_add_up():
    found = samples(families(BUSY))
    for index, name in enumerate(HISTOGRAMS, 1):
        (family,) = (family for family in families(BUSY) if family.name == name)
        assert family.type == "histogram"
        check_histogram(family)
        for number, model in ((1, "a:latest"), (2, "b:latest")):
            assert value(found, f"{name}_count", model=model) == index + 1
            assert value(found, f"{name}_sum", model=model) == pytest.approx(0.02 * number * index + 1e6)
    assert value(found, "puna_step_duration_seconds_bucket", model="a:latest", le="0.015") == 0
    assert value(found, "puna_step_duration_seconds_bucket", model="a:latest", le="0.02") == 1  # inclusive


@given(st.lists(st.floats(0, 1e4), max_size=30))
def test_any_histogram_adds_up(values):
    metrics = ModelMetrics()
    for each in values:
        metrics.first_token_s.observe(each)
    observation = Observation(EngineStats(1, [], metrics={"m": metrics}), 1, {})
    (family,) = (f for f in families(observation) if f.name == "puna_time_to_first_token_seconds")
    check_histogram(family)


def test_weights_that_came_to_bear_the_same_name_share_their_series():
    """A name that is pulled again; two samples with the same labels would make the scrape invalid."""
    observation = Observation(BUSY.stats, 2, {"digest-a": "m:latest", "digest-b": "m:latest"})
    found = samples(families(observation))
    assert value(found, "puna_prompt_tokens_total", model="m:latest") == 2 + 3
    assert value(found, "puna_requests_finished_total", model="m:latest", reason="stop") == 1 + 2
    assert value(found, "puna_model_loaded", model="m:latest") == 1
    assert value(found, "puna_requests_running", model="m:latest") == 3
    assert value(found, "puna_step_duration_seconds_count", model="m:latest") == 4


def test_a_model_without_a_name_goes_by_its_digest():
    found = samples(families(Observation(BUSY.stats, 1, {})))
    assert value(found, "puna_prompt_tokens_total", model="digest-a") == 2


def test_names_may_hold_anything():
    name = 'a"b\\c\nd{e="f"}🦙'
    found = samples(families(Observation(BUSY.stats, 1, {"digest-a": name})))
    assert value(found, "puna_prompt_tokens_total", model=name) == 2


@pytest.mark.parametrize("observation", [BUSY, NO_WORKER], ids=["busy", "no worker"])
def test_conventions(observation: Observation):
    """What `promtool check metrics` complains about."""
    text = encode(observation, http_counts()).decode()
    assert text.endswith("\n")
    types = re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE)
    helps = re.findall(r"^# HELP (\S+) (.+)$", text, re.MULTILINE)
    assert [name for name, _ in types] == [name for name, _ in helps]
    assert len(dict(types)) == len(types), "a family is there twice"
    for name, kind in types:
        assert re.fullmatch(r"puna_[a-z]+(_[a-z]+)*", name)
        assert name.endswith("_total") == (kind == "counter")
        assert not re.search(
            r"_(ms|milliseconds|kb|mb|percent|count|sum|bucket|gauge|counter|histogram)$", name
        )
        assert not re.search(r"(seconds|bytes)_(?!total$)", name), "the unit comes last"
        if kind == "histogram":
            assert name.endswith("_seconds")
    assert all(text.endswith(".") for _, text in helps)
    reserved = {"le", "quantile", "job", "instance"}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = set(sample.labels) - ({"le"} if sample.name.endswith("_bucket") else set())
            assert not labels & reserved
            assert all(sample.labels[label] for label in labels)


def scrape(client) -> Samples:
    reply = client.get("/metrics")
    assert reply.status_code == 200
    assert reply.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    return samples(text_string_to_metric_families(reply.text))


def test_scrape_without_a_worker_loads_nothing(client, runtime):
    found = scrape(client)
    assert value(found, "puna_worker_up") == 0
    assert value(found, "puna_worker_starts_total") == 0
    assert not any(name.startswith("puna_kv") for name, _ in found)
    assert runtime.num_loads == 0


def test_scrape_with_a_worker(client, runtime):
    runtime.observation = BUSY
    assert value(scrape(client), "puna_worker_up") == 1


def test_a_worker_that_hangs_fails_the_scrape(client, runtime):
    """Zeros would look like a restart, and the next scrape like a burst of everything since the start."""
    runtime.worker_hangs = True
    reply = client.get("/metrics")
    assert (reply.status_code, reply.json()) == (503, {"error": "the worker does not answer"})


def requests_by(found: Samples) -> dict[tuple[str, str], float]:
    return {
        (dict(labels)["route"], dict(labels)["status"]): count
        for (name, labels), count in found.items()
        if name == "puna_http_requests_total"
    }


def test_requests_are_counted_by_route_and_status(client):
    client.get("/api/version")
    client.get("/api/version")
    client.get("/nowhere")
    client.get("/elsewhere")
    client.post("/api/version")
    client.post("/api/generate", {"model": "missing"})
    client.request("HEAD", "/api/blobs/sha256:00")
    client.get("/", host="evil.example")
    client.lines("/api/generate", {"model": "m", "prompt": "x"})
    found = scrape(client)
    assert requests_by(found) == {
        ("/", "403"): 1,
        ("/api/blobs/{digest}", "400"): 1,
        ("/api/generate", "200"): 1,
        ("/api/generate", "404"): 1,
        ("/api/version", "200"): 2,
        ("/api/version", "405"): 1,
        ("other", "404"): 2,
    }
    in_progress = {
        dict(k[1])["route"]: n for k, n in found.items() if k[0] == "puna_http_requests_in_progress"
    }
    assert in_progress.pop("/metrics") == 1
    assert set(in_progress.values()) == {0}


def test_a_bug_is_counted_as_500(client, runtime, monkeypatch):
    monkeypatch.setattr(runtime, "loaded", lambda: 1 / 0)
    assert client.get("/api/ps").status_code == 500
    assert requests_by(scrape(client)) == {("/api/ps", "500"): 1}


def test_open_streams_are_in_progress_and_those_that_leave_are_counted(client, runtime):
    runtime.script = Script(hangs=True)

    async def leave_in_the_middle() -> float:
        sent = asyncio.Event()
        left = asyncio.Event()
        body = b'{"model": "m", "prompt": "x"}'
        parts = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive():
            if parts:
                return parts.pop()
            await left.wait()
            return {"type": "http.disconnect"}

        async def send(message):
            if message.get("body"):
                sent.set()

        scope = {
            "type": "http",
            "method": "POST",
            "path": "/api/generate",
            "root_path": "",
            "query_string": b"",
            "headers": [(b"host", b"localhost")],
        }
        serving = asyncio.create_task(client.app(scope, receive, send))
        await sent.wait()
        open_streams = client.app.state.context.http_counts.in_progress["/api/generate"]
        left.set()
        await serving
        return open_streams

    assert asyncio.run(leave_in_the_middle()) == 1
    found = scrape(client)
    assert value(found, "puna_http_requests_in_progress", route="/api/generate") == 0
    assert requests_by(found) == {("/api/generate", "200"): 1}
