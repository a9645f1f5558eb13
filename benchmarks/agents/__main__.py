"""How much do coding agents have computed twice? Writes a Markdown table.

A main conversation that grows to 28,000 tokens and four subagents, with two models, through HTTP.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.agents import scenarios
from benchmarks.command import Command
from benchmarks.figures import Report

COMMAND = Command(
    description=str(__doc__),
    scenarios={"trace": scenarios.trace, "kills": scenarios.kills},
    out=Path(__file__).parents[1] / "agents.md",
    markdown=Report.tables,
)

if __name__ == "__main__":
    COMMAND.run()
