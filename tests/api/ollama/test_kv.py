"""/api/kv over a runtime whose memory is a table."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from puna.daemon.runtime import Observation
from puna.engine.observation.metrics import ModelMetrics
from puna.engine.observation.stats import DiskStats, EngineStats, ModelStats
from puna.kv.group_stats import GroupStats

pytestmark = pytest.mark.native

MIB = 1 << 20


def model(model_id: str, **fields) -> ModelStats:
    values = {
        "num_running": 0,
        "num_waiting": 0,
        "num_preemptions": 0,
        "block_bytes": MIB,
        "used_kv_bytes": 0,
        "cached_kv_bytes": 0,
        "committed_kv_bytes": 0,
    }
    return ModelStats(model_id=model_id, **(values | fields))


@pytest.fixture(autouse=True)
def observation(runtime) -> None:
    busy = model(
        "digest-b",
        num_running=2,
        num_waiting=3,
        used_kv_bytes=5 * MIB,
        cached_kv_bytes=2 * MIB,
        committed_kv_bytes=8 * MIB,
        reserved_kv_bytes=1 << 40,
        guaranteed_kv_bytes=MIB,
        weight_bytes=90 * MIB,
        kv_groups=[GroupStats(None, MIB, 3, 1, 0), GroupStats(None, 2 * MIB, 1, 3, 1, True)],
    )
    counted = ModelMetrics(prompt_tokens=200, cached_tokens=50, restored_tokens=20, computed_tokens=160)
    stats = EngineStats(
        64 * MIB,
        [busy, model("digest-a", is_asleep=True)],
        memory_limit_bytes=256 * MIB,
        leased_bytes=4 * MIB,
        disk=DiskStats(limit_bytes=100, num_bytes=70, restored_tokens=16, saved_tokens=32),
        metrics={
            "digest-a": ModelMetrics(),
            "digest-b": counted,
        },
        since=datetime(2026, 1, 2, tzinfo=UTC),
    )
    names = {"digest-a": "a:latest", "digest-b": "b:latest"}
    runtime.observation = Observation(stats=stats, num_worker_starts=1, model_names=names)


def test_all_memory(client):
    response = client.get("/api/kv")
    assert response.status_code == 200
    assert response.json() == {
        "kv_limit": 64 * MIB,
        "memory_limit": 256 * MIB,
        "committed": 8 * MIB,
        "leased": 4 * MIB,
        "disk": {"limit": 100, "size": 70, "restored_tokens": 16, "saved_tokens": 32},
        "prompt_tokens": {"computed": 160, "in_memory": 30, "on_disk": 20},
        "since": "2026-01-02T00:00:00Z",
        "models": [
            {
                "name": "a:latest",
                "state": "asleep",
                "weights": 0,
                "reserved": 0,
                "committed": 0,
                "used": 0,
                "cached": 0,
                "guaranteed": 0,
                "groups": [],
                "hit_rate": None,
                "prompt_tokens": {"computed": 0, "in_memory": 0, "on_disk": 0},
                "running": 0,
                "waiting": 0,
            },
            {
                "name": "b:latest",
                "state": "resident",
                "weights": 90 * MIB,
                "reserved": 1 << 40,
                "committed": 8 * MIB,
                "used": 5 * MIB,
                "cached": 2 * MIB,
                "guaranteed": MIB,
                "groups": [
                    {"window": None, "states": False, "used": 3 * MIB, "cached": MIB},
                    {"window": None, "states": True, "used": 2 * MIB, "cached": 6 * MIB},
                ],
                "hit_rate": 0.25,
                "prompt_tokens": {"computed": 160, "in_memory": 30, "on_disk": 20},
                "running": 2,
                "waiting": 3,
            },
        ],
    }
    assert client.request("HEAD", "/api/kv").status_code == 200


def test_without_a_disk(client, runtime):
    runtime.observation.stats.disk = None
    assert client.get("/api/kv").json()["disk"] is None


@pytest.mark.parametrize(
    ("body", "asked"),
    [
        ({"kv_limit": 32 * MIB}, (32 * MIB, None)),
        ({"kv_limit": "32MB"}, (32 * MIB, None)),
        ({"memory_limit": "1.5g"}, (None, 3 << 29)),
        ({"kv_limit": "16m", "memory_limit": MIB, "unknown": 1}, (16 * MIB, MIB)),
    ],
)
def test_limits_in_bytes_or_as_text(client, runtime, body, asked):
    response = client.post("/api/kv/limit", body)
    assert response.status_code == 200
    assert runtime.limits_set == [asked]
    expected = {"kv_limit": asked[0] or 64 * MIB, "memory_limit": asked[1] or 256 * MIB, "excess": 0}
    assert response.json() == {**expected, "note": "", "warnings": []}


def test_limits_beyond_the_machine_are_told(client, runtime, monkeypatch, caplog):
    monkeypatch.setattr("puna.daemon.odd_settings.total_bytes", lambda: 24 << 30)
    response = client.post("/api/kv/limit", {"kv_limit": "60TB", "memory_limit": "24GB"})
    warning = "the limit of KV, 60 TiB, is more than this machine has: 24 GiB"
    assert response.json()["warnings"] == [warning]
    assert runtime.limits_set == [(60 << 40, 24 << 30)]
    assert warning in caplog.messages


def test_a_limit_below_what_is_in_use_says_by_how_much_and_who_has_it(client, caplog):
    response = client.post("/api/kv/limit", {"kv_limit": "2MB"})
    note = (
        "7 MiB more than that is taken: 5 MiB in use by requests, 3 MiB in the same extents, "
        "4 MiB leased to others; it shrinks as requests finish; nothing more is taken until then"
    )
    limits = {"kv_limit": 2 * MIB, "memory_limit": 256 * MIB}
    assert response.json() == {**limits, "excess": 7 * MIB, "note": note, "warnings": []}
    assert note in caplog.text


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ({}, "kv_limit or memory_limit is required"),
        ({"kv_limit": None}, "kv_limit or memory_limit is required"),
        ({"kv_limit": "12x"}, 'kv_limit: "12x" is not a size (try 12GiB)'),
        ({"kv_limit": ""}, 'kv_limit: "" is not a size (try 12GiB)'),
        ({"memory_limit": "0GB"}, 'memory_limit: "0GB" is no memory at all (try 12GiB)'),
        ({"kv_limit": "99999999T"}, 'kv_limit: "99999999T" is more than any memory'),
        ({"kv_limit": 0}, 'kv_limit: "0" is no memory at all (try 12GiB)'),
        ({"kv_limit": -5}, 'kv_limit: "-5" is not a size (try 12GiB)'),
        ({"kv_limit": 1 << 63}, f'kv_limit: "{1 << 63}" is more than any memory'),
        ({"kv_limit": 4}, 'kv_limit: "4" is 4 B, less than any model can use (try 4GB)'),
        ({"memory_limit": "4"}, 'memory_limit: "4" is 4 B, less than any model can use (try 4GB)'),
        ({"kv_limit": 1.5}, "invalid request: Expected `int | str | null`, got `float` - at `$.kv_limit`"),
        ({"kv_limit": True}, "invalid request: Expected `int | str | null`, got `bool` - at `$.kv_limit`"),
        # Nothing changes if one of the two is wrong.
        ({"kv_limit": "1GB", "memory_limit": "x"}, 'memory_limit: "x" is not a size (try 12GiB)'),
    ],
)
def test_nonsense_changes_nothing(client, runtime, body, error):
    response = client.post("/api/kv/limit", body)
    assert (response.status_code, response.json()) == (400, {"error": error})
    assert runtime.limits_set == []


def test_trim(client):
    response = client.post("/api/kv/trim")
    assert (response.status_code, response.json()) == (200, {"freed": 3 * MIB})


def test_a_worker_that_does_not_answer(client, runtime):
    runtime.worker_hangs = True
    response = client.get("/api/kv")
    assert (response.status_code, response.json()) == (503, {"error": "the worker does not answer"})


def test_a_worker_that_cannot_be_started(client, runtime):
    runtime.observation = Observation(stats=None, num_worker_starts=3, model_names={})
    response = client.get("/api/kv")
    assert response.status_code == 500
    assert "model runner has unexpectedly stopped" in response.json()["error"]
