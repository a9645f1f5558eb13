"""Percentiles, and the table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple


class Target(NamedTuple):
    """What a ratio should be at least, or at most."""

    bound: float
    is_least: bool = True

    def __str__(self) -> str:
        return f"{'≥' if self.is_least else '≤'} {self.bound:.3g}"

    def is_met(self, ratio: float) -> bool:
        return ratio >= self.bound if self.is_least else ratio <= self.bound


@dataclass(frozen=True)
class Row:
    """A line of the table; cells that say nothing stay empty."""

    figure: str
    puna: str
    peer: str = ""
    ratio: float | None = None
    target: Target | None = None

    def cells(self) -> list[str]:
        ratio = "" if self.ratio is None else f"**{self.ratio:.3g}**"
        target = ""
        if self.target is not None:
            assert self.ratio is not None, "a target for nothing"
            target = f"{self.target}: {'met' if self.target.is_met(self.ratio) else 'missed'}"
        return [self.figure, self.puna, self.peer, ratio, target]


@dataclass
class Report:
    """By scenario; partial while the benchmark runs."""

    intro: str
    scenarios: dict[str, list[Row]] = field(default_factory=dict)

    def markdown(self) -> str:
        return "\n\n".join([self.intro, *(_table(*item) for item in self.scenarios.items())]) + "\n"


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that is not below `percent` % of all. Raises ValueError if there are none."""
    if not values:
        raise ValueError("no values")
    return sorted(values)[max(math.ceil(len(values) * percent / 100), 1) - 1]


def seconds(value: float) -> str:
    return f"{value:.2f} s" if value >= 1 else f"{value * 1e3:.1f} ms"


def rate(value: float) -> str:
    return f"{value:.0f} tokens/s"


def _table(title: str, rows: Sequence[Row]) -> str:
    lines = [[title, "puna", "llama.cpp", "ratio", "wanted"], ["---"] * 5, *(row.cells() for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
