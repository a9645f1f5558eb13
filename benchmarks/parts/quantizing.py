"""How long does quantizing a model take, against llama-quantize? `python -m benchmarks.parts.quantizing
F16.gguf`

Both read the file from the page cache, write into the same directory and use as many threads; they take
turns. Times are of the work, without the start of either program. The peer is the llama-quantize beside the
server of benchmarks.servers.peer (`python -m benchmarks.servers.peer` builds both).
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import tempfile
import time
from contextlib import closing
from pathlib import Path

from benchmarks.machine import machine_today
from benchmarks.servers.peer import QUANTIZER
from puna._native import ThreadPool
from puna.convert.requantize import requantize


def our_seconds(source: Path, output: Path, quantization: str, pool: ThreadPool) -> float:
    with source.open("rb") as file, output.open("w+b") as out:
        start = time.perf_counter()
        requantize({source.name: file.fileno()}, out.fileno(), quantization, lambda _: None, pool)
        return time.perf_counter() - start


def peer_seconds(peer: Path, source: Path, output: Path, quantization: str, threads: int) -> float:
    command = [str(peer), str(source), str(output), quantization, str(threads)]
    reply = subprocess.run(command, capture_output=True, text=True, check=True)
    found = re.search(r"quantize time = +([0-9.]+) ms", reply.stdout + reply.stderr)
    assert found
    return float(found[1]) / 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("source", type=Path, help="a GGUF file of F16, BF16 or F32")
    parser.add_argument("--types", nargs="+", default=["Q4_K_M", "Q8_0", "Q4_0"])
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--peer", type=Path, default=QUANTIZER)
    arguments = parser.parse_args()
    print(f"{machine_today(arguments.threads)} Medians of {arguments.rounds} rounds.\n")
    print("| | ours | llama-quantize | ratio, by round |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as directory, closing(ThreadPool(arguments.threads)) as pool:
        output = Path(directory) / "out.gguf"
        for quantization in arguments.types:
            ours, theirs = [], []
            for _ in range(arguments.rounds):
                ours.append(our_seconds(arguments.source, output, quantization, pool))
                theirs.append(
                    peer_seconds(arguments.peer, arguments.source, output, quantization, arguments.threads)
                )
            ratios = [our / their for our, their in zip(ours, theirs, strict=True)]
            print(
                f"| {quantization} | {statistics.median(ours):.2f} s | {statistics.median(theirs):.2f} s | "
                f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}) |",
                flush=True,
            )


if __name__ == "__main__":
    main()
