"""Faults of every kind against real daemons under load: `python -m tests.campaign.faults [--count N] [PART]`

After each: nothing hangs, no answer is wrong, nothing is lost but requests in flight, all is normal again
within two seconds; at the end nothing is left. Prints a table; status 1 if anything was otherwise.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

from tests.campaign.daemon import Daemon
from tests.campaign.disk.disk_faults import run_full, run_hangs
from tests.campaign.kills import KILLS, STOPS
from tests.campaign.limits import run_clock, run_descriptors, run_memory
from tests.campaign.results import Row, table
from tests.campaign.store import make_store
from tests.campaign.under_load import SWITCHING, drawn, run_under_load

Part = Callable[[Path, int, int], Awaitable[list[Row]]]
"""(empty directory, number of kills, seed) -> rows"""


async def _kills(root: Path, count: int, seed: int) -> list[Row]:
    daemon = Daemon(root, make_store(root / "models", root), SWITCHING)
    return await run_under_load(daemon, drawn(KILLS, count, seed), seed, num_kills=count)


async def _stops(root: Path, count: int, seed: int) -> list[Row]:
    daemon = Daemon(root, make_store(root / "models", root), SWITCHING)
    return await run_under_load(daemon, drawn(STOPS, count // 5, seed), seed)


PARTS: dict[str, Part] = {
    "kills": _kills,
    "stops": _stops,
    "full": run_full,
    "hangs": lambda root, count, seed: run_hangs(root, count // 20, seed),
    "descriptors": lambda root, count, seed: run_descriptors(root, count // 20, seed),
    "memory": lambda root, count, seed: run_memory(root, count // 20, seed),
    "clock": lambda root, count, seed: run_clock(root, count // 10, seed),
}


async def _run(names: list[str], count: int, seed: int) -> list[Row]:
    rows: list[Row] = []
    for name in names:
        with tempfile.TemporaryDirectory(prefix=f"puna-{name}-") as directory:
            try:
                found = await PARTS[name](Path(directory), count, seed)
            except OSError as error:
                print(f"left out: {name}: {error}")
                continue
        for row in found:
            for violation in row.violations:
                print(f"WRONG, {row.name}: {violation}", file=sys.stderr)
        rows += found
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--count", type=int, default=200, help="how many kills; the rest in proportion")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help=f"of {', '.join(PARTS)}; default: all")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that daemons end and disks are unmounted
    rows = asyncio.run(_run(given.parts or list(PARTS), given.count, given.seed))
    print(table(rows))
    sys.exit(any(row.violations for row in rows))


if __name__ == "__main__":
    main()
