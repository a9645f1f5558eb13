"""What users are told when a limit is lowered below what is taken."""

from __future__ import annotations

import pytest

from puna.daemon.models.shortage import describe_excess
from puna.engine.observation.stats import EngineStats, ModelStats

pytestmark = pytest.mark.unit

GB, MB = 1 << 30, 1 << 20


def model(model_id: str, *, weights=0, used=0, committed=0) -> ModelStats:
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
    )


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
