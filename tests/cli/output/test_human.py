"""Sizes, durations and times in Ollama's wording."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from puna.cli.models.listing import processor
from puna.cli.output.human import go_duration, human_duration, human_size, parse_time, time_ago, time_until
from puna.cli.run.reply import statistics

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("num_bytes", "text"),
    [
        *((0, "0 B"), (999, "999 B"), (1000, "1 KB"), (1500, "1.5 KB"), (10_900, "10 KB")),
        *((98_362_432, "98 MB"), (4_700_000_000, "4.7 GB"), (42_000_000_000, "42 GB"), (2 * 10**12, "2 TB")),
    ],
)
def test_sizes(num_bytes, text):
    assert human_size(num_bytes) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        *((0.4, "Less than a second"), (1.9, "1 second"), (59, "59 seconds"), (60, "About a minute")),
        *((119, "About a minute"), (120, "2 minutes"), (3599, "59 minutes"), (3600, "About an hour")),
        *((2 * 3600, "2 hours"), (47 * 3600, "47 hours"), (48 * 3600, "2 days"), (13 * 86400, "13 days")),
        *(
            (14 * 86400, "2 weeks"),
            (59 * 86400, "8 weeks"),
            (60 * 86400, "2 months"),
            (729 * 86400, "24 months"),
        ),
        (730 * 86400, "2 years"),
    ],
)
def test_durations(seconds, text):
    assert human_duration(timedelta(seconds=seconds)) == text


def test_relative_times():
    now = datetime(2026, 1, 2, tzinfo=UTC)
    assert time_ago("2026-01-01T00:00:00Z", now) == "24 hours ago"
    assert time_until("2026-01-02T00:05:00.5Z", now) == "5 minutes from now"
    assert time_until("2026-01-01T23:59:59+00:00", now) == "Stopping..."
    assert time_until("2318-01-01T00:00:00Z", now) == "Forever"


@pytest.mark.parametrize("fraction", ["", ".1", ".123", ".123456", ".123456789"])
@pytest.mark.parametrize("zone", ["Z", "+02:00", "-05:30"])
def test_times_of_any_precision_are_read(fraction, zone):
    time = parse_time(f"2026-01-02T03:04:05{fraction}{zone}")
    assert time.microsecond == int(f"{fraction[1:]:0<6}"[:6])
    assert time.second == 5
    assert time.tzinfo is not None


@pytest.mark.parametrize(
    ("nanoseconds", "text"),
    [
        *(
            (0, "0ns"),
            (1500, "1.5µs"),
            (230_100_000, "230.1ms"),
            (1_500_000_000, "1.5s"),
            (61 * 10**9, "1m1s"),
        ),
        (3_723_000_000_000, "1h2m3s"),
    ],
)
def test_durations_as_go_prints_them(nanoseconds, text):
    assert go_duration(nanoseconds) == text


@pytest.mark.parametrize(
    ("size", "vram", "text"),
    [
        *((10, 0, "100% CPU"), (10, 10, "100% GPU"), (10, 11, "Unknown"), (0, 5, "Unknown")),
        (100, 30, "70%/30% CPU/GPU"),
    ],
)
def test_processor(size, vram, text):
    assert processor(size, vram) == text


def test_statistics():
    final = {
        "total_duration": 2_500_000_000,
        "load_duration": 0,
        "prompt_eval_count": 10,
        "prompt_eval_duration": 500_000_000,
        "eval_count": 30,
        "eval_duration": 1_500_000_000,
    }
    assert statistics(final) == (
        "total duration:       2.5s\n"
        "prompt eval count:    10 token(s)\n"
        "prompt eval duration: 500ms\n"
        "prompt eval rate:     20.00 tokens/s\n"
        "eval count:           30 token(s)\n"
        "eval duration:        1.5s\n"
        "eval rate:            20.00 tokens/s"
    )
