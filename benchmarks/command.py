"""The command line of benchmarks that consist of scenarios."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import httpx

from benchmarks.figures import Report
from benchmarks.machine import machine_today
from benchmarks.scenario import Scenario, Setup
from benchmarks.servers.peer import ENVIRONMENT, Peer
from puna.backends.cpu.cores import usable_cores


@dataclass(frozen=True)
class Command:
    """description: of --help. markdown: how a report is written to `out`, and printed."""

    description: str
    scenarios: Mapping[str, Scenario]
    out: Path
    markdown: Callable[[Report], str]

    def run(self) -> None:
        """Measures what the command line asks for. Exits with 1 if a scenario failed."""
        arguments = self._arguments()
        setup = Setup(Peer.find(arguments.peer), arguments.threads, arguments.quick)
        report = Report(_intro(setup))
        start = time.monotonic()
        done = [self._measure(name, setup, report, arguments.out) for name in arguments.scenarios]
        print(report.json() if arguments.json else self.markdown(report))
        print(f"took {time.monotonic() - start:.0f} s", file=sys.stderr)
        sys.exit(not all(done))

    def _measure(self, name: str, setup: Setup, report: Report, out: Path) -> bool:
        """False if a server failed, since the other scenarios are worth measuring."""
        try:
            for title, row in self.scenarios[name](setup):
                report.scenarios.setdefault(title, []).append(row)
                out.write_text(self.markdown(report))  # as far as it is, should it be stopped
                print(f"{title}: {' | '.join(row.cells())}", file=sys.stderr, flush=True)
        except (RuntimeError, KeyError, OSError, httpx.HTTPError) as error:
            print(f"{name}: {error}", file=sys.stderr)
            return False
        return True

    def _arguments(self) -> argparse.Namespace:
        parser = argparse.ArgumentParser(
            description=self.description, formatter_class=argparse.RawTextHelpFormatter
        )
        names = ", ".join(self.scenarios)
        parser.add_argument("scenarios", nargs="*", help=f"{names}, or all (the default)")
        parser.add_argument(
            "--quick", action="store_true", help="less of everything: shows only that all works"
        )
        parser.add_argument("--threads", type=int, default=usable_cores())
        parser.add_argument(
            "--peer", type=Path, help=f"llama-server; default: ${ENVIRONMENT}, `make peer`, the wheel"
        )
        parser.add_argument("--json", action="store_true", help="print JSON instead of the table")
        parser.add_argument("--out", type=Path, default=self.out, help="where the table goes")
        arguments = parser.parse_args()
        if arguments.scenarios in ([], ["all"]):
            arguments.scenarios = list(self.scenarios)
        if unknown := set(arguments.scenarios) - self.scenarios.keys():
            parser.error(f"no scenario {', '.join(sorted(unknown))}; there are {names}, and all")
        return arguments


def _intro(setup: Setup) -> str:
    quick = " A quick run: the figures mean little." if setup.quick else ""
    return f"{machine_today(setup.threads)}\nPeer: {setup.peer.description}.{quick}"
