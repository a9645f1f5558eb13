"""512 texts to vectors, one text's latency, 100 passages ranked: MiniLM-L6 beside llama.cpp and ONNX Runtime.

ONNX Runtime computes in this process, from tokens, without a server; `pip install puna[onnx]` brings it.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.command import Command
from benchmarks.embeddings import scenario
from benchmarks.figures import Report

COMMAND = Command(
    description=str(__doc__),
    scenarios={"f32": scenario.f32, "q8_0": scenario.q8_0, "rerank": scenario.rerank},
    out=Path(__file__).parents[1] / "embeddings.md",
    markdown=Report.one_table,
)

if __name__ == "__main__":
    COMMAND.run()
