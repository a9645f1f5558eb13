"""Figures of one build or two, measured in turn, and their table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import NamedTuple

from benchmarks.figures import percentile


class Figure(NamedTuple):
    """What is measured.

    most: what it may be. most_added: what it may be above the other build. digits: behind the point.
    """

    title: str
    unit: str
    digits: int = 0
    most: float | None = None
    most_added: float | None = None


@dataclass
class Results:
    """Samples by figure and build; the i-th ones of both builds were measured one right after the other."""

    builds: Sequence[str]
    samples: dict[Figure, dict[str, list[float]]] = field(default_factory=dict)

    def add(self, figure: Figure, build: str, value: float) -> None:
        self.samples.setdefault(figure, {name: [] for name in self.builds})[build].append(value)

    def markdown(self) -> str:
        """Minimum, median and 95th percentile of each build; what the first adds to the second; floors."""
        added = ["added"] if len(self.builds) > 1 else []
        head = ["minimum / median / p95", *self.builds, *added, "floor"]
        rows = [self._row(figure, of_builds) for figure, of_builds in self.samples.items()]
        return "\n".join(f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *rows])

    def _row(self, figure: Figure, of_builds: dict[str, list[float]]) -> list[str]:
        def show(value: float) -> str:
            return f"{value:.{figure.digits}f}"

        cells = [f"{figure.title}, {figure.unit}"]
        for values in of_builds.values():
            cells.append(" / ".join(map(show, (min(values), median(values), percentile(values, 95)))))
        samples = list(of_builds.values())
        floors = []
        if figure.most is not None:
            floors.append(_verdict(f"≤ {figure.most:g}", met=median(samples[0]) <= figure.most))
        if len(samples) > 1:
            # Of neighbours in time, since others may use the machine for a while.
            added = median(new - old for new, old in zip(*samples, strict=True))
            cells.append(
                f"{added:+.{figure.digits}f} (minima {min(samples[0]) - min(samples[1]):+.{figure.digits}f})"
            )
            if figure.most_added is not None:
                floors.append(_verdict(f"added ≤ {figure.most_added:g}", met=added <= figure.most_added))
        return [*cells, "; ".join(floors)]


def _verdict(floor: str, *, met: bool) -> str:
    return f"{floor}: {'met' if met else 'missed'}"
