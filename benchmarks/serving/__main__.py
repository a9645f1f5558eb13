"""How does puna serve many requests, beside llama.cpp's server on the same files? Writes a Markdown table.

Both servers run real requests through HTTP, one after the other; an idle server sleeps.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import httpx

from benchmarks.machine import machine_today
from benchmarks.peer import ENVIRONMENT, Peer
from benchmarks.serving import latency, memory, prefix, speculation
from benchmarks.serving.figures import Report
from benchmarks.serving.scenario import Setup
from puna.backends.cpu.cores import usable_cores

RESULTS = Path(__file__).parents[1] / "serving.md"
SCENARIOS = {
    "prefix": prefix.measure,
    "latency": latency.measure,
    "speculation": speculation.measure,
    "memory": memory.measure,
}


def main() -> None:
    arguments = _arguments()
    setup = Setup(Peer.find(arguments.peer), arguments.threads, arguments.quick)
    report = Report(_intro(setup))
    start = time.monotonic()
    done = [_run(name, setup, report, arguments.out) for name in arguments.scenarios]
    print(report.markdown())
    print(f"took {time.monotonic() - start:.0f} s", file=sys.stderr)
    sys.exit(not all(done))


def _run(name: str, setup: Setup, report: Report, out: Path) -> bool:
    """False if a server failed, since the other scenarios are worth measuring."""
    try:
        for title, row in SCENARIOS[name](setup):
            report.scenarios.setdefault(title, []).append(row)
            out.write_text(report.markdown())  # as far as it is, should it be stopped
            print(f"{title}: {' | '.join(row.cells())}", file=sys.stderr, flush=True)
    except (RuntimeError, KeyError, OSError, httpx.HTTPError) as error:
        print(f"{name}: {error}", file=sys.stderr)
        return False
    return True


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("scenarios", nargs="*", help=f"{', '.join(SCENARIOS)}, or all (the default)")
    parser.add_argument("--quick", action="store_true", help="less of everything: shows only that all works")
    parser.add_argument("--threads", type=int, default=usable_cores())
    parser.add_argument(
        "--peer", type=Path, help=f"llama-server; default: ${ENVIRONMENT}, `make peer`, the wheel"
    )
    parser.add_argument("--out", type=Path, default=RESULTS, help="where the table goes")
    arguments = parser.parse_args()
    if arguments.scenarios in ([], ["all"]):
        arguments.scenarios = list(SCENARIOS)
    if unknown := set(arguments.scenarios) - SCENARIOS.keys():
        parser.error(f"no scenario {', '.join(sorted(unknown))}; there are {', '.join(SCENARIOS)}, and all")
    return arguments


def _intro(setup: Setup) -> str:
    quick = " A quick run: the figures mean little." if setup.quick else ""
    return f"{machine_today(setup.threads)}\nPeer: {setup.peer.description}.{quick}"


if __name__ == "__main__":
    main()
