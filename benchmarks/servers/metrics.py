"""The daemon's own figures, from its /metrics."""

from __future__ import annotations

import re
from dataclasses import dataclass

import httpx

_SAMPLE = re.compile(r"^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)(?: \d+)?$")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True)
class Metrics:
    """Samples in Prometheus' text format."""

    samples: list[tuple[str, dict[str, str], float]]

    @classmethod
    def parse(cls, text: str) -> Metrics:
        matches = [_SAMPLE.match(line) for line in text.splitlines() if not line.startswith("#")]
        return cls([(m[1], dict(_LABEL.findall(m[2] or "")), float(m[3])) for m in matches if m])

    @classmethod
    def of(cls, url: str) -> Metrics:
        return cls.parse(httpx.get(f"{url}/metrics", trust_env=False).raise_for_status().text)

    def total(self, name: str, **labels: str) -> float:
        """Sum over all samples of this name that bear the labels. Raises KeyError if there are none."""
        values = [v for n, has, v in self.samples if n == name and labels.items() <= has.items()]
        if not values:
            raise KeyError(f"/metrics has no {name} {labels or ''}")
        return sum(values)
