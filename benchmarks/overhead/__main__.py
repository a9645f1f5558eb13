"""What does puna add around its engine? `python -m benchmarks.overhead [--against CHECKOUT]`

Real daemons, asked through HTTP, around a model that computes next to nothing and answers with a fixed
text; starts and memory with SmolLM2. With another checkout, which must be built, the daemons of both are
measured in turn, but for the kinds of requests. Prints a Markdown table. Linux only.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.overhead.comparing import Results
from benchmarks.overhead.kinds import measure_kinds
from benchmarks.overhead.measuring import measure_requests, measure_starts
from benchmarks.overhead.replay import write_replay
from benchmarks.weights.files import bench_file, own_file

_OWN = Path(__file__).parents[2]
_PARTS = ("requests", "kinds", "starts")


def main() -> None:
    arguments = _arguments()
    builds = {"this build": _OWN}
    if arguments.against is not None:
        builds["other build"] = arguments.against.resolve()
    results = Results(list(builds))
    smollm2 = bench_file("Q4_1")
    start, load = time.monotonic(), os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="puna-bench-") as directory:
        target = Path(directory, "replay.gguf")
        write_replay(smollm2.path, target)
        replay = own_file(target, Path(directory, "store"))
        if "requests" in arguments.parts:
            measure_requests(builds, replay, arguments.rounds, results)
        if "kinds" in arguments.parts:
            print(measure_kinds(_OWN, replay, max(arguments.rounds // 2, 1)).markdown())
    if "starts" in arguments.parts:
        measure_starts(builds, smollm2, max(arguments.rounds // 2, 1), results)
    if results.samples:
        print(results.markdown())
    took_s = time.monotonic() - start
    print(
        f"load {load:.1f} at the start, {os.getloadavg()[0]:.1f} at the end; took {took_s:.0f} s",
        file=sys.stderr,
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.overhead",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(_PARTS)}; all by default")
    parser.add_argument("--against", type=Path, metavar="CHECKOUT", help="another one, to compare with")
    parser.add_argument("--rounds", type=int, default=16, help="default 16; half as many of kinds and starts")
    arguments = parser.parse_args()
    arguments.parts = arguments.parts or list(_PARTS)
    if unknown := set(arguments.parts) - set(_PARTS):
        parser.error(f"no part {', '.join(sorted(unknown))}; there are {', '.join(_PARTS)}")
    return arguments


if __name__ == "__main__":
    main()
