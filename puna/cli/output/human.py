"""Sizes, times and durations as people read them, in Ollama's wording."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from puna.config.sizes import human_count as human_count
from puna.config.sizes import human_size as human_size


def human_duration(duration: timedelta) -> str:
    """`5 minutes`, `About an hour`, `3 weeks`."""
    seconds = duration.total_seconds()
    hours = round(seconds / 3600)
    if seconds < 1:
        return "Less than a second"
    if seconds < 60:
        return "1 second" if int(seconds) == 1 else f"{int(seconds)} seconds"
    if seconds < 3600:
        return "About a minute" if seconds < 120 else f"{int(seconds / 60)} minutes"
    if hours < 48:
        return "About an hour" if hours == 1 else f"{hours} hours"
    for unit, unit_hours, limit_hours in (
        ("days", 24, 24 * 14),
        ("weeks", 24 * 7, 24 * 60),
        ("months", 24 * 30, 24 * 365 * 2),
    ):
        if hours < limit_hours:
            return f"{hours // unit_hours} {unit}"
    return f"{hours // (24 * 365)} years"


def time_ago(text: str, now: datetime | None = None) -> str:
    """`3 days ago`, for an RFC 3339 time."""
    return f"{human_duration((now or datetime.now(UTC)) - parse_time(text))} ago"


def time_until(text: str, now: datetime | None = None) -> str:
    """`4 minutes from now`; `Stopping...` if it is past, `Forever` if it is more than 20 years away."""
    left = parse_time(text) - (now or datetime.now(UTC))
    if left <= timedelta(0):
        return "Stopping..."
    return "Forever" if left > timedelta(days=20 * 365) else f"{human_duration(left)} from now"


def parse_time(text: str) -> datetime:
    """An RFC 3339 time, which may have nanoseconds; they are cut to microseconds."""
    return datetime.fromisoformat(text)


def go_duration(nanoseconds: int) -> str:
    """As Go prints it: `1.5s`, `230.1ms`, `1h2m3s`."""
    for unit_ns, unit in ((1, "ns"), (1_000, "µs"), (1_000_000, "ms")):
        if nanoseconds < unit_ns * 1000:
            return _trimmed(nanoseconds / unit_ns) + unit
    minutes, rest_ns = divmod(nanoseconds, 60 * 10**9)
    hours, minutes = divmod(minutes, 60)
    seconds = _trimmed(rest_ns / 1e9) + "s"
    return (f"{hours}h{minutes}m" if hours else f"{minutes}m" if minutes else "") + seconds


def _trimmed(value: float) -> str:
    return f"{value:.9f}".rstrip("0").rstrip(".")
