"""What users are told when a model does not fit."""

from __future__ import annotations

import pytest

from puna.daemon.models.shortage import could_fit, describe_excess, describe_shortage
from puna.engine.request import EngineStats, ModelStats
from puna.kv.budget import Shortage

pytestmark = pytest.mark.unit

GB, MB = 1 << 30, 1 << 20


def model(model_id: str, *, weights=0, used=0, committed=0, minimum=0, is_asleep=False) -> ModelStats:
    return ModelStats(
        model_id,
        num_running=0,
        num_waiting=0,
        num_preemptions=0,
        block_bytes=64,
        used_kv_bytes=used,
        cached_kv_bytes=0,
        committed_kv_bytes=committed,
        weight_bytes=weights,
        minimum_kv_bytes=minimum,
        is_asleep=is_asleep,
    )


STATS = EngineStats(
    kv_limit_bytes=2 * GB,
    models=[
        model("1", weights=3 * GB, used=200 * MB, committed=300 * MB),
        model("2", weights=9 * GB, minimum=GB, is_asleep=True),
        model("3", weights=500 * MB, minimum=256 * MB),
    ],
    leased_bytes=GB,
)
NAMES = {"1": "qwen3", "3": "tiny"}


def test_it_says_what_is_needed_and_who_holds_the_rest():
    shortage = Shortage(2 * GB + 64 * MB, 4 * GB, 3900 * MB)
    assert describe_shortage("llama3.2", 2 * GB, shortage, STATS, NAMES) == (
        "llama3.2 needs 2.06 GiB (weights 2 GiB, KV at least 64 MiB), the memory limit is 4 GiB: "
        "qwen3 holds 3 GiB of weights and 200 MiB of KV in use, "
        "tiny holds 500 MiB of weights and 256 MiB of KV that it is sure of, 1 GiB are leased to others"
    )


def test_of_kv_memory_weights_are_no_part():
    shortage = Shortage(GB, 2 * GB, 1256 * MB, is_of_kv=True)
    assert describe_shortage("llama3.2", 2 * GB, shortage, STATS, NAMES) == (
        "llama3.2 needs 1 GiB of KV memory, the limit is 2 GiB: qwen3 holds 200 MiB of KV in use, "
        "tiny holds 256 MiB of KV that it is sure of, 1 GiB are leased to others"
    )


def test_alone_it_may_be_too_large():
    shortage = Shortage(9 * GB, 4 * GB, 0)
    stats = EngineStats(kv_limit_bytes=GB, models=[])
    text = "huge needs 9 GiB (weights 8.9 GiB, KV at least 100 MiB), the memory limit is 4 GiB"
    assert describe_shortage("huge", 9 * GB - 100 * MB, shortage, stats, {}) == text


@pytest.mark.parametrize(
    ("needed", "is_of_kv", "idle", "expected"),
    [
        (4 * GB, False, {"1", "3"}, True),
        (4 * GB, False, {"3"}, False),
        (4 * GB, False, {"2"}, False),
        (500 * MB, True, {"1"}, True),
        (700 * MB, True, {"1"}, False),
    ],
)
def test_whether_it_would_help_if_others_slept(needed, is_of_kv, idle, expected):
    limit = 2 * GB if is_of_kv else 4 * GB
    taken = 1800 * MB if is_of_kv else 3700 * MB
    assert could_fit(Shortage(needed, limit, taken, is_of_kv), STATS, idle) is expected


@pytest.mark.parametrize(
    ("stats", "is_elastic", "expected"),
    [
        (
            EngineStats(12 * MB, [model("1", used=42 * MB, committed=60 * MB)], memory_limit_bytes=GB),
            True,
            "42 MiB in use by requests, 18 MiB in the same extents; it shrinks as requests finish",
        ),
        (EngineStats(12 * MB, [], memory_limit_bytes=GB, leased_bytes=GB), True, "1 GiB leased to others"),
        (
            EngineStats(500 * MB, [model("1", committed=748 * MB)], memory_limit_bytes=GB),
            False,
            "748 MiB reserved for models that are loaded",
        ),
        (
            EngineStats(GB, [model("1", weights=90 * MB)], memory_limit_bytes=50 * MB),
            True,
            "90 MiB of weights",
        ),
    ],
)
def test_who_exceeds_a_limit_and_whether_that_shrinks(stats: EngineStats, is_elastic: bool, expected: str):
    text = describe_excess(48 * MB, stats, is_elastic=is_elastic)
    assert text == f"48 MiB more than that is taken: {expected}; nothing more is taken until then"
