"""What does the engine cost as things grow? `python -m benchmarks.growth [SCENARIO ...] [--against CHECKOUT]`

The engine alone, in a process of its own for each scenario, around a device that computes nothing. Times are
processor time of the engine's thread, so that others on the machine disturb them little. With another
checkout, which must be built, the same scenarios run on it in turn. Prints a Markdown table. Linux only.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.growth.scenarios import SCENARIOS
from benchmarks.overhead.comparing import Figure, Results

_OWN = Path(__file__).parents[2]
_CHILD = "import sys; sys.path.insert(0, sys.argv[1]); import puna; sys.path[0] = sys.argv[2]; " + (
    "from benchmarks.growth.child import run; run(sys.argv[3])"
)
"""The benchmark is this checkout's, puna that of the build."""


def main() -> None:
    arguments = _arguments()
    builds = {"this build": _OWN}
    if arguments.against is not None:
        builds["other build"] = arguments.against.resolve()
    results = Results(list(builds))
    start = time.monotonic()
    for scenario in arguments.scenarios:
        for _ in range(arguments.rounds):
            for name, checkout in builds.items():
                _measure(scenario, name, checkout, results)
    print(results.markdown())
    print(f"took {time.monotonic() - start:.0f} s", file=sys.stderr)


def _measure(scenario: str, build: str, checkout: Path, results: Results) -> None:
    command = [sys.executable, "-P", "-c", _CHILD, str(checkout), str(_OWN), scenario]
    child = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True)
    if child.returncode:
        print(f"{scenario} failed on {build}", file=sys.stderr)
        return
    for figure, values in json.loads(child.stdout):
        for value in values:
            results.add(Figure(*figure), build, value)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.growth",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = ", ".join(SCENARIOS)
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help=f"{names}; all by default")
    parser.add_argument("--against", type=Path, metavar="CHECKOUT", help="another one, to compare with")
    parser.add_argument("--rounds", type=int, default=1, help="processes per scenario; default 1")
    arguments = parser.parse_args()
    arguments.scenarios = arguments.scenarios or list(SCENARIOS)
    if unknown := set(arguments.scenarios) - set(SCENARIOS):
        parser.error(f"no scenario {', '.join(sorted(unknown))}; there are {names}")
    return arguments


if __name__ == "__main__":
    main()
