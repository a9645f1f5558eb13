"""Percentiles, and the tables."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, NamedTuple


def plain(value: float) -> str:
    return f"{value:.3g}"


def percent(value: float) -> str:
    return f"{value:.1%}"


def seconds(value: float) -> str:
    return f"{value:.2f} s" if value >= 1 else f"{value * 1e3:.1f} ms"


def mebibytes(num_bytes: float) -> str:
    return f"{num_bytes / 2**20:.1f} MiB" if num_bytes else "0 bytes"


def rate(value: float) -> str:
    return f"{value:.0f} tokens/s"


class Target(NamedTuple):
    """What a figure should be at least, or at most. show: how it is written."""

    bound: float
    is_least: bool = True
    show: Callable[[float], str] = plain

    def __str__(self) -> str:
        return f"{'≥' if self.is_least else '≤'} {self.show(self.bound)}"

    def is_met(self, value: float) -> bool:
        return value >= self.bound if self.is_least else value <= self.bound


@dataclass(frozen=True)
class Row:
    """A line of the table; cells that say nothing stay empty."""

    figure: str
    puna: str
    peer: str = ""
    ratio: float | None = None
    target: Target | None = None
    value: float | None = None
    """What the target is about; None: the ratio."""

    def __post_init__(self) -> None:
        assert self.target is None or self.wanted_value is not None, "a target for nothing"

    @property
    def wanted_value(self) -> float | None:
        return self.ratio if self.value is None else self.value

    @property
    def is_met(self) -> bool | None:
        """None: nothing is wanted."""
        if self.target is None or self.wanted_value is None:
            return None
        return self.target.is_met(self.wanted_value)

    def cells(self) -> list[str]:
        ratio = "" if self.ratio is None else f"**{plain(self.ratio)}**"
        target = "" if self.target is None else f"{self.target}: {'met' if self.is_met else 'missed'}"
        return [self.figure, self.puna, self.peer, ratio, target]

    def record(self) -> dict[str, Any]:
        """As JSON has it."""
        target = None if self.target is None else str(self.target)
        return {
            "figure": self.figure,
            "puna": self.puna,
            "llama.cpp": self.peer,
            "ratio": self.ratio,
            "value": self.wanted_value,
            "wanted": target,
            "met": self.is_met,
        }


@dataclass
class Report:
    """By scenario; partial while the benchmark runs."""

    intro: str
    scenarios: dict[str, list[Row]] = field(default_factory=dict)

    def tables(self) -> str:
        """Markdown with a table for each scenario."""
        return "\n\n".join([self.intro, *(_table(*item) for item in self.scenarios.items())]) + "\n"

    def one_table(self) -> str:
        """Markdown with a table of all of them; ratios say how many times better puna is."""
        lines = [["scenario", "figure", "puna", "llama.cpp", "better", "floor"], ["---"] * 6]
        for title, rows in self.scenarios.items():
            for i, row in enumerate(rows):
                figure, puna, peer, ratio, target = row.cells()
                lines.append(
                    ["" if i else f"**{title}**", figure, puna, peer, ratio and f"{ratio} ×", target]
                )
        return f"{self.intro}\n\n{_lines(lines)}\n"

    def json(self) -> str:
        scenarios = {title: [row.record() for row in rows] for title, rows in self.scenarios.items()}
        return json.dumps({"intro": self.intro, "scenarios": scenarios}, indent=2, ensure_ascii=False)


def percentile(values: Sequence[float], percentage: float) -> float:
    """The smallest value that is not below `percentage` % of all. Raises ValueError if there are none."""
    if not values:
        raise ValueError("no values")
    return sorted(values)[max(math.ceil(len(values) * percentage / 100), 1) - 1]


def median_interval(values: Sequence[float]) -> tuple[float, float]:
    """Between what the median lies with a confidence of 95%, whatever the distribution."""
    if not values:
        raise ValueError("no values")
    # The number of values below the median is binomial; 1.96 deviations of that on either side.
    half = 1.96 * math.sqrt(len(values)) / 2
    low, high = math.floor(len(values) / 2 - half), math.ceil(len(values) / 2 + half)
    ordered = sorted(values)
    return ordered[max(low, 0)], ordered[min(high, len(values) - 1)]


def p50_p95(values: Sequence[float]) -> str:
    return " / ".join(seconds(percentile(values, percentage)) for percentage in (50, 95))


def median_and_range(values: Sequence[float], show: Callable[[float], str]) -> str:
    return f"{show(median(values))} ({show(min(values))} to {show(max(values))})"


def _table(title: str, rows: Sequence[Row]) -> str:
    head = [[title, "puna", "llama.cpp", "ratio", "wanted"], ["---"] * 5]
    return _lines([*head, *(row.cells() for row in rows)])


def _lines(lines: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
