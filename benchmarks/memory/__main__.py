"""What does one memory for many models bring, beside a llama.cpp server for each? Writes a Markdown table.

All servers run real requests through HTTP, one after the other unless a scenario says otherwise.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.command import Command
from benchmarks.figures import Report
from benchmarks.memory import alternation, burst, elastic, idle, many, prefixes, switch, windows

COMMAND = Command(
    description=str(__doc__),
    scenarios={
        "elastic": elastic.measure,
        "alternation": alternation.measure,
        "switch": switch.measure,
        "many": many.measure,
        "idle": idle.measure,
        "burst": burst.measure,
        "prefixes": prefixes.measure,
        "windows": windows.measure,
    },
    out=Path(__file__).parents[1] / "memory.md",
    markdown=Report.one_table,
)

if __name__ == "__main__":
    COMMAND.run()
