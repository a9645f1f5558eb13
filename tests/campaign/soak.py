"""Mixed load for long: `python -m tests.campaign.soak [--minutes 30] [--seed N]`

Streams, long prompts, clients that leave, sessions, bad requests, models that take turns in sleeping. Every
answer is checked. Memory, descriptors and threads of every process are sampled, and lines fitted to what
comes after a warm-up.
Status 1 if an answer was wrong or something grows.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tests.campaign.clients.load import Load
from tests.campaign.daemon import Daemon
from tests.campaign.processes import usage
from tests.campaign.store import make_store
from tests.campaign.under_load import SWITCHING, ended, learn_all

_CLIENTS = 8
_EVERY_S = 5.0
_WARM_UP = 0.25
"""Of the whole time: allocators and caches fill."""
_BOUNDS = {"anonymous MiB": 8.0, "descriptors": 4.0, "threads": 2.0}
"""Growth of the fitted line after the warm-up that counts as flat: what leaks, leaks with each request, and
of those there are tens of thousands, so 8 MiB are a few hundred bytes for each."""


class Sample(NamedTuple):
    """One kind of process, all of its processes together."""

    at_s: float
    values: tuple[float, float, float]
    """In the order of _BOUNDS."""


class Slope(NamedTuple):
    """One line of the table."""

    kind: str
    quantity: str
    first: float
    last: float
    """Means of the first and last tenth after the warm-up."""
    per_hour: float
    """By least squares."""
    growth: float
    """Of the fitted line, over the time after the warm-up."""

    @property
    def is_flat(self) -> bool:
        return self.growth <= _BOUNDS[self.quantity]


async def soak(root: Path, minutes: float, seed: int) -> tuple[list[Slope], list[str], str]:
    """(slopes, what was wrong, what the clients saw)"""
    models = make_store(root / "models", root)
    daemon = Daemon(root, models, {**SWITCHING, "PUNA_KV_DISK": "64MiB"})
    try:
        await daemon.start()
        load = Load(daemon, await learn_all(daemon), f"soak {seed}", pause_s=0.4)
        load.start(_CLIENTS)
        samples = await _sample(daemon, minutes * 60)
        await load.end()
        wrong = load.violations + await ended(daemon)
        seen = ", ".join(f"{count} {outcome}" for outcome, count in load.outcomes.most_common())
    finally:
        daemon.end()
    return [slope for kind in samples for slope in slopes(kind, samples[kind])], wrong, seen


def slopes(kind: str, samples: list[Sample]) -> list[Slope]:
    """Of each quantity, after the warm-up."""
    end_s = samples[-1].at_s
    kept = [sample for sample in samples if sample.at_s >= _WARM_UP * end_s]
    times_s = np.array([sample.at_s for sample in kept])
    tenth = max(1, len(kept) // 10)
    found = []
    for at, quantity in enumerate(_BOUNDS):
        values = np.array([sample.values[at] for sample in kept])
        per_s = float(np.polyfit(times_s, values, 1)[0]) if len(kept) > 1 else 0.0
        first, last = float(values[:tenth].mean()), float(values[-tenth:].mean())
        found.append(Slope(kind, quantity, first, last, per_s * 3600, per_s * (end_s - times_s[0])))
    return found


async def _sample(daemon: Daemon, seconds: float) -> dict[str, list[Sample]]:
    samples: dict[str, list[Sample]] = defaultdict(list)
    began_s = time.monotonic()
    while (at_s := time.monotonic() - began_s) < seconds:
        together: dict[str, list[tuple[int, int, int]]] = defaultdict(list)
        for pid, kind in daemon.processes().items():
            try:
                together[kind].append(usage(pid))
            except (FileNotFoundError, ProcessLookupError):  # a text worker that was one too many
                continue
        for kind, usages in together.items():
            memory, *counts = map(sum, zip(*usages, strict=True))
            samples[kind].append(Sample(at_s, (memory / (1 << 20), *map(float, counts))))
        await asyncio.sleep(_EVERY_S)
    return samples


def table(found: list[Slope]) -> str:
    lines = [f"{'process':<8} {'':<14} {'first':>8} {'last':>8} {'slope/h':>9} {'growth':>8}"]
    for slope in found:
        numbers = f"{slope.first:>8.1f} {slope.last:>8.1f} {slope.per_hour:>+9.2f} {slope.growth:>+8.2f}"
        verdict = "flat" if slope.is_flat else "GROWS"
        lines.append(f"{slope.kind:<8} {slope.quantity:<14} {numbers}  {verdict}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that daemons end and disks are unmounted
    with tempfile.TemporaryDirectory(prefix="puna-soak-") as directory:
        found, wrong, seen = asyncio.run(soak(Path(directory), given.minutes, given.seed))
    print(table(found))
    print(seen)
    for text in wrong:
        print(f"WRONG: {text}", file=sys.stderr)
    sys.exit(bool(wrong) or not all(slope.is_flat for slope in found))


if __name__ == "__main__":
    main()
