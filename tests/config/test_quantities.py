"""Durations and sizes as people write them."""

from __future__ import annotations

import math

import pytest

from puna.config.quantities import keep_alive_seconds, parse_duration, parse_memory_limit, parse_size

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0),
        ("-0", 0),
        ("5m", 300),
        ("1h30m10.5s", 5410.5),
        ("+.5s", 0.5),
        ("5.s", 5),
        ("-2h", -7200),
        ("300ms", 0.3),
        ("1us", 1e-6),
        ("1µs", 1e-6),
        ("7ns", 7e-9),
    ],
)
def test_durations_are_gos(text, seconds):
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("300", 'time: missing unit in duration "300"'),
        ("", 'time: invalid duration ""'),
        ("-", 'time: invalid duration "-"'),
        (".s", 'time: invalid duration ".s"'),
        ("m5", 'time: invalid duration "m5"'),
        ("3d", 'time: unknown unit "d" in duration "3d"'),
        ("1h 5m", 'time: unknown unit "h " in duration "1h 5m"'),
        ("9999999h", 'time: invalid duration "9999999h"'),
        ("٣s", 'time: invalid duration "٣s"'),
    ],
)
def test_bad_durations_say_what_go_says(text, message):
    with pytest.raises(ValueError, match="duration") as error:
        parse_duration(text)
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("value", "seconds"), [(0, 0), (1.5, 1.5), (-1, math.inf), ("-1s", math.inf), (1e300, math.inf)]
)
def test_negative_or_endless_keep_alive_is_forever(value, seconds):
    assert keep_alive_seconds(value) == seconds


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("4096", 4096),
        ("12GiB", 12 << 30),
        ("12G", 12 << 30),
        ("1.5g", 3 << 29),
        ("512MB", 512 << 20),
        ("8 KiB", 8192),
        ("1_000,000", 1_000_000),
        ("0", 0),
        ("7b", 7),
        ("2tb", 2 << 40),
    ],
)
def test_sizes(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize(
    ("text", "size"), [("20", 20 << 30), ("0.5", 1 << 29), ("512MB", 512 << 20), ("9b", 9)]
)
def test_a_unit_wins_over_the_one_of_bare_numbers(text, size):
    assert parse_size(text, unit=1 << 30) == size


@pytest.mark.parametrize("text", ["", "-1", "12x", "GB", "1.2.3", "1e9", "٣", "0x10", "inf", "1 2", "12GBs"])
def test_what_is_no_size(text):
    with pytest.raises(ValueError, match="is not a size"):
        parse_size(text)


@pytest.mark.parametrize("text", ["9" * 400, "9223372036854775808", "8388608T"])
def test_sizes_beyond_any_memory(text):
    with pytest.raises(ValueError, match="is more than any memory"):
        parse_size(text)


@pytest.mark.parametrize("text", ["200TB", "65T", "8388607TB"])
def test_a_limit_is_one_that_a_process_can_use(text):
    with pytest.raises(ValueError, match=f'"{text}" is more than the 64 TiB that one process can use'):
        parse_memory_limit(text)


@pytest.mark.parametrize("text", ["0", "0GB", "0.0", "0.1b"])
def test_a_limit_leaves_room_for_something(text):
    with pytest.raises(ValueError, match="is no memory at all"):
        parse_memory_limit(text)


@pytest.mark.parametrize(
    ("text", "unit", "size"),
    [("4", 1, "4 B"), ("1023KB", 1, "1023 KiB"), ("0.0001", 1 << 30, "104 KiB")],
)
def test_a_limit_leaves_room_for_a_model(text, unit, size):
    with pytest.raises(ValueError, match=f'"{text}" is {size}, less than any model can use'):
        parse_memory_limit(text, unit)
    assert parse_memory_limit("1MiB", unit) == 1 << 20
