"""Turns of retrieval with four models: one daemon beside llama.cpp's router and four of its servers."""

from __future__ import annotations

from pathlib import Path

from benchmarks.command import Command
from benchmarks.figures import Report
from benchmarks.retrieval import scenario

COMMAND = Command(
    description=str(__doc__),
    scenarios={"retrieval": scenario.measure},
    out=Path(__file__).parents[1] / "retrieval.md",
    markdown=Report.one_table,
)

if __name__ == "__main__":
    COMMAND.run()
