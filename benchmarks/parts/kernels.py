"""How fast does one core multiply with weights of each type? `python -m benchmarks.parts.kernels [types]`

Prints Gop/s (a multiplication and an addition count as two) and, for few tokens, the GB/s at which weights
are read. Few tokens read a weight far larger than the caches, as generation does; many tokens use one that
fits, since there the arithmetic is what counts. Figures are the best of several runs: on a machine that
others use too, they say what the kernels can do, not what a busy machine delivers. The time includes
rounding the activations to int8.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np

from puna import _native
from puna.gguf import GgufFile
from tests.kernels.weights import TYPES, random_weight, write_weights

COLS = 4096
LARGE_BYTES = 96 << 20
SMALL_ROWS = 1024
FEW_TOKENS = (1, 2, 4, 8)
MANY_TOKENS = (16, 64, 512)


def best_seconds(file: _native.GgufFile, weight: str, x: np.ndarray, isa: str, seconds: float) -> float:
    best, end = float("inf"), time.perf_counter() + seconds
    while (start := time.perf_counter()) < end:
        _native.linear(file, weight, x, isa)
        best = min(best, time.perf_counter() - start)
    return best


def measure(path: Path, weight_type: str, isa: str, seconds: float) -> list[str]:
    """One table cell per number of tokens."""
    small = random_weight(weight_type, SMALL_ROWS, COLS)
    copies = LARGE_BYTES // small.nbytes
    write_weights(path, weight_type, {"large": np.tile(small, (copies, 1)), "small": small})
    file = GgufFile(path).native
    cells = []
    for tokens in (*FEW_TOKENS, *MANY_TOKENS):
        weight, rows = ("large", copies * SMALL_ROWS) if tokens in FEW_TOKENS else ("small", SMALL_ROWS)
        x = np.random.default_rng(0).standard_normal((tokens, COLS)).astype(np.float32)
        taken = best_seconds(file, weight, x, isa, seconds)
        cell = f"{2 * rows * COLS * tokens / taken / 1e9:.0f}"
        if tokens in FEW_TOKENS:
            cell += f" ({copies * small.nbytes / taken / 1e9:.1f} GB/s)"
        cells.append(cell)
    return cells


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("types", nargs="*", default=TYPES, metavar="type")
    parser.add_argument("--isa", default="auto")
    parser.add_argument("--seconds", type=float, default=0.5, help="per figure")
    arguments = parser.parse_args()
    header = ["type", *(f"{tokens} tokens" for tokens in (*FEW_TOKENS, *MANY_TOKENS))]
    print(f"Gop/s of one core, {COLS} columns\n")
    print("| " + " | ".join(header) + " |")
    print("|---" * len(header) + "|")
    with tempfile.TemporaryDirectory() as directory:
        for weight_type in arguments.types:
            path = Path(directory) / f"{weight_type}.gguf"
            cells = measure(path, weight_type, arguments.isa, arguments.seconds)
            path.unlink()
            print("| " + " | ".join([weight_type, *cells]) + " |", flush=True)


if __name__ == "__main__":
    main()
