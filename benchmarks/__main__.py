"""How fast is puna beside llama.cpp on the same files and machine? Writes a Markdown table of ratios.

One server is asked at a time, through HTTP, in turn, for several rounds; figures are medians over the
rounds. llama.cpp runs with whichever of its settings is fastest, for each file and row anew.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.comparison import Plan, Row, compare
from benchmarks.files import FILES, BenchFile, bench_file, own_file
from benchmarks.machine import describe
from benchmarks.peer import ENVIRONMENT, Peer
from benchmarks.report import Results, quote_in_readme
from benchmarks.workloads import WORKLOADS

RESULTS = Path(__file__).with_name("results.md")


def main() -> None:
    arguments = _arguments()
    peer = Peer.find(arguments.peer)
    rounds = 1 if arguments.quick else arguments.rounds
    results = Results(_intro(peer, arguments, rounds))
    try:
        for name in [*arguments.files, *arguments.gguf]:
            with _opened(name) as file:
                # A round with a large file takes minutes.
                plan = Plan(
                    rows=arguments.rows,
                    rounds=min(rounds, 2) if file.is_large else rounds,
                    threads=arguments.threads,
                    search=not arguments.quick,
                )

                def done(row_name: str, row: Row, title: str = file.title) -> None:
                    results.add(title, row_name, row)
                    arguments.out.write_text(results.markdown())  # as far as it is, should it be stopped

                compare(file, peer, plan, done)
    except KeyboardInterrupt:
        raise SystemExit(f"interrupted; what was measured is in {arguments.out}") from None
    if arguments.readme:
        quote_in_readme(results.markdown())
    print(results.markdown())


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
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument(
        "--peer", type=Path, help=f"llama-server; default: ${ENVIRONMENT}, `make peer`, the wheel"
    )
    parser.add_argument("--out", type=Path, default=RESULTS, help="where the table goes")
    parser.add_argument("--readme", action="store_true", help="quote the table in the README, too")
    arguments = parser.parse_args()
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


def _intro(peer: Peer, arguments: argparse.Namespace, rounds: int) -> str:
    settings = "its default settings" if arguments.quick else "the best of four settings, named in the table"
    return (
        f"{describe(arguments.threads)} The peer is {peer.description}, with {settings}. "
        f"Medians of {rounds} rounds (at most 2 with the large file), both servers asked in turn through HTTP."
    )


if __name__ == "__main__":
    main()
