"""The Markdown that the README quotes."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from benchmarks.comparison import Row
from benchmarks.workloads import WORKLOADS

README = Path(__file__).parents[1] / "README.md"
_QUOTE = re.compile(r"(<!-- benchmark: begin -->\n).*?(<!-- benchmark: end -->)", re.DOTALL)


@dataclass
class Results:
    """By file title and row; partial while the benchmark runs."""

    intro: str
    rows: dict[str, dict[str, Row]] = field(default_factory=dict)

    def add(self, title: str, name: str, row: Row) -> None:
        self.rows.setdefault(title, {})[name] = row

    def markdown(self) -> str:
        return f"{self.intro}\n\n{self._ratios()}\n\n{self._rates()}\n"

    def _ratios(self) -> str:
        lines = [_line(["puna / llama.cpp", *self.rows]), _line(["---"] * (len(self.rows) + 1))]
        for name, workload in WORKLOADS.items():
            cells = [_ratio(rows.get(name)) for rows in self.rows.values()]
            if any(cells):
                lines.append(_line([workload.title, *cells]))
        return "\n".join(lines)

    def _rates(self) -> str:
        lines = [
            _line(
                [
                    "tokens/s (median)",
                    "file",
                    "puna",
                    "llama.cpp",
                    "range of ratios",
                    "puna, of what the machine can",
                    "llama.cpp's best setting",
                ]
            ),
            _line(["---"] * 7),
        ]
        for name, workload in WORKLOADS.items():
            for title, rows in self.rows.items():
                if row := rows.get(name):
                    ratios = sorted(a / b for a, b in zip(row.puna, row.llamacpp, strict=True))
                    rates = [_rate(median(row.puna)), _rate(median(row.llamacpp))]
                    spread = f"{ratios[0]:.2f} to {ratios[-1]:.2f}"
                    lines.append(_line([workload.title, title, *rates, spread, row.roof, row.setting]))
        return "\n".join(lines)


def quote_in_readme(markdown: str, readme: Path = README) -> None:
    """Replaces what stands between the markers. Raises SystemExit if there are none."""
    text = readme.read_text()
    if not _QUOTE.search(text):
        raise SystemExit(f"{readme} has no benchmark markers")
    readme.write_text(_QUOTE.sub(lambda match: f"{match[1]}{markdown}{match[2]}", text))


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _ratio(row: Row | None) -> str:
    return f"**{median(row.puna) / median(row.llamacpp):.2f}**" if row else ""


def _rate(rate: float) -> str:
    return f"{rate:.0f}" if rate >= 100 else f"{rate:.1f}"
