"""How does puna serve many requests, beside llama.cpp's server on the same files? Writes a Markdown table.

Both servers run real requests through HTTP, one after the other; an idle server sleeps.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.command import Command
from benchmarks.figures import Report
from benchmarks.serving import embeddings, latency, memory, prefix, speculation

COMMAND = Command(
    description=str(__doc__),
    scenarios={
        "prefix": prefix.measure,
        "latency": latency.measure,
        "speculation": speculation.measure,
        "memory": memory.measure,
        "embeddings": embeddings.measure,
    },
    out=Path(__file__).parents[1] / "serving.md",
    markdown=Report.tables,
)

if __name__ == "__main__":
    COMMAND.run()
