"""How fast is puna beside llama.cpp on the same files and machine? Writes a Markdown table of ratios.

One server is asked at a time, through HTTP, in turn, for several rounds; figures are medians over the
rounds. llama.cpp runs with whichever of its settings is fastest, for each file and row anew.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from benchmarks.comparison import Plan, Row, compare
from benchmarks.machine import machine_today
from benchmarks.report import Results, quote_in_readme
from benchmarks.servers.peer import ENVIRONMENT, Peer
from benchmarks.weights.files import FILES, BenchFile, bench_file, own_file
from benchmarks.workloads import WORKLOADS
from puna.backends.cpu.cores import usable_cores
from puna.bench.machine import Roofs, measure_roofs

RESULTS = Path(__file__).with_name("results.md")
_LARGE_ROUNDS = 2  # a round with a large file takes minutes


def main() -> None:
    arguments = _arguments()
    peer = Peer.find(arguments.peer)
    roofs = measure_roofs(arguments.threads)
    results = Results(_intro(peer, arguments, roofs))
    start = time.monotonic()
    try:
        files = [*arguments.files, *arguments.gguf]
        done = [_measure(name, peer, arguments, results, roofs) for name in files]
    except KeyboardInterrupt:
        raise SystemExit(f"interrupted; what was measured is in {arguments.out}") from None
    if arguments.readme:
        quote_in_readme(results.markdown())
    print(results.markdown())
    print(f"took {(time.monotonic() - start) / 60:.0f} minutes", file=sys.stderr)
    sys.exit(not all(done))


def _measure(
    name: str | Path, peer: Peer, arguments: argparse.Namespace, results: Results, roofs: Roofs
) -> bool:
    """One file; False if a server failed, since the other files are worth measuring."""
    with _opened(name) as file:
        plan = Plan(
            rows=arguments.rows,
            rounds=min(arguments.rounds, _LARGE_ROUNDS) if file.is_large else arguments.rounds,
            threads=arguments.threads,
            search=not arguments.quick,
            roofs=roofs,
        )

        def done(row_name: str, row: Row) -> None:
            results.add(file.title, row_name, row)
            arguments.out.write_text(results.markdown())  # as far as it is, should it be stopped

        try:
            compare(file, peer, plan, done)
        except (RuntimeError, httpx.HTTPError) as error:
            print(f"{file.title}: {error}", file=sys.stderr)
            return False
    return True


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("gguf", nargs="*", type=Path, help="files of your own, instead of the table's")
    parser.add_argument("--files", nargs="+", choices=FILES, metavar="FILE", help=", ".join(FILES))
    parser.add_argument(
        "--rows",
        nargs="+",
        choices=WORKLOADS,
        default=list(WORKLOADS),
        metavar="ROW",
        help=", ".join(WORKLOADS),
    )
    parser.add_argument("--rounds", type=int, default=3, help="default 3; at most 2 with a file above 1 GB")
    parser.add_argument("--quick", action="store_true", help="one round, llama.cpp's default setting")
    parser.add_argument("--threads", type=int, default=usable_cores())
    parser.add_argument(
        "--peer", type=Path, help=f"llama-server; default: ${ENVIRONMENT}, `make peer`, the wheel"
    )
    parser.add_argument("--out", type=Path, default=RESULTS, help="where the table goes")
    parser.add_argument("--readme", action="store_true", help="quote the table in the README, too")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.rounds = 1
    if arguments.files is None:
        arguments.files = [] if arguments.gguf else list(FILES)
    return arguments


@contextmanager
def _opened(name: str | Path) -> Iterator[BenchFile]:
    if isinstance(name, str):
        yield bench_file(name)
        return
    with tempfile.TemporaryDirectory(prefix="puna-bench-") as store:
        yield own_file(name, Path(store))


def _intro(peer: Peer, arguments: argparse.Namespace, roofs: Roofs) -> str:
    """What was measured on, with what, and how; names no machine."""
    settings = "its default settings" if arguments.quick else "whichever of four settings is fastest"
    return (
        f"{machine_today(arguments.threads, roofs)}\n"
        f"Peer: {peer.description}, with {settings}.\n"
        f"Medians of {arguments.rounds} rounds (large files: at most {_LARGE_ROUNDS}), "
        "both servers asked in turn through HTTP."
    )


if __name__ == "__main__":
    main()
