"""Pulls from a hostile registry, killed at random: `python -m tests.campaign.pulls [--count 200] [--seed 7]`

One or two processes at once pull into one store; the registry drops, stalls, refuses, lies and corrupts; both
kinds of faults come at random times. After every attempt: each blob is what its name says, each listed model
is complete, and no byte was asked for again that was there already. Status 1 otherwise.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from puna.registry import ModelName, Store
from puna.registry.digest import parse_digest
from puna.registry.store.part_files import PARTIAL
from tests.campaign.puller import start_pull
from tests.registry.loopback.contents import Contents
from tests.registry.loopback.faults import FAULTS, RandomFaults
from tests.registry.loopback.server import Registry

_MAX_ATTEMPTS = 60
_BYTES_PER_S = 12e6
_KINDS = tuple(kind for kind in FAULTS if kind != "no range")
"""Who knows no ranges sends everything again, whatever is there; see `_behave`."""


@dataclass
class Findings:
    """Of all pulls; numbers of bytes."""

    num_pulls: int = 0
    num_attempts: int = 0
    num_kills: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    pulled: int = 0
    """Of models that are complete."""
    resumed: int = 0
    """That were there when an attempt began."""
    fetched_again: int = 0
    """Of those, what was asked for again."""
    lost: list[int] = field(default_factory=list)
    """By a kill: sent, but not there for the next attempt."""
    violations: list[str] = field(default_factory=list)


class Campaign:
    """Pulls of models from `registry` into the store at `root`."""

    def __init__(self, root: Path, registry: Registry, seed: str) -> None:
        self.found = Findings()
        self._root = root / "store"
        self._errors = root / "errors"
        self._registry = registry
        self._random = random.Random(seed)
        self._store = Store(self._root)
        self._weights = self._random.randbytes(6 << 20)

    def pull(self, number: int) -> None:
        """One model, in as many attempts as it takes."""
        name, num_bytes = self._new_model(number)
        self._behave()
        for _ in range(_MAX_ATTEMPTS):
            is_complete = self._attempt(name)
            self._verify(name, is_complete)
            if is_complete:
                self.found.num_pulls += 1
                self.found.pulled += num_bytes
                break
        else:
            self.found.violations.append(f"{name} was not there after {_MAX_ATTEMPTS} attempts")
        if self._random.random() < 0.3:
            self._store.delete(ModelName.parse(name))

    def _new_model(self, number: int) -> tuple[str, int]:
        """Of random size; the one before it, and the one after it, may have the same weights."""
        size = self._random.randrange(1000, len(self._weights))
        weights = b"GGUF" + (number // 2).to_bytes(4, "little") + self._weights[:size]
        if number % 2:
            weights = weights[: len(weights) // 2] if self._random.random() < 0.5 else weights
        layers = {"model": weights, "system": b"%d" % number}
        self._registry.contents.add_model("library/m", f"t{number}", **layers)
        return f"{self._registry.host}/library/m:t{number}", sum(map(len, layers.values()))

    def _behave(self) -> None:
        behaviour = self._registry.behaviour
        behaviour.redirects = self._random.random() < 0.7
        behaviour.bytes_per_s = _BYTES_PER_S
        self._knows_ranges = self._random.random() < 0.9
        share = self._random.choice((0.0, 0.05, 0.2)) if self._knows_ranges else 1.0
        kinds = _KINDS if self._knows_ranges else ("no range",)
        behaviour.fault = RandomFaults(str(self._random.random()), share, kinds)

    def _attempt(self, name: str) -> bool:
        """Whether the model is there afterwards."""
        there, num_errors = self._completed(), self._num_errors()
        self._registry.sent.clear()
        self._registry.requests.clear()
        processes = [
            start_pull(self._root, name, self._errors) for _ in range(self._random.choice((1, 1, 2)))
        ]
        is_killed = self._random.random() < 0.7
        deadline = time.monotonic() + self._random.uniform(0, 0.6)
        for process in processes:
            process.join(max(deadline - time.monotonic(), 0) if is_killed else 60)
            if process.is_alive():
                self.found.num_kills += 1
                process.kill()
                if not is_killed:
                    self.found.violations.append(f"{name}: a pull hung")
                process.join()
        self._registry.wait_until_idle()
        self.found.num_attempts += 1
        self._count(there, num_errors, any(process.exitcode == -9 for process in processes))
        for process in processes:
            if process.exitcode not in (0, 1, -9):
                self.found.violations.append(f"{name}: ended with {process.exitcode}")
        return any(process.exitcode == 0 for process in processes)

    def _num_errors(self) -> int:
        return len(self._errors.read_text().splitlines()) if self._errors.exists() else 0

    def _completed(self) -> dict[str, list[tuple[int, int]]]:
        """Ranges that are there, by digest, of blobs and of unfinished downloads."""
        found: dict[str, list[tuple[int, int]]] = {}
        for path in self._root.glob("blobs/sha256-*"):
            name, is_partial, number = path.name.partition(PARTIAL)
            if not is_partial:
                found[parse_digest(name)] = [(0, path.stat().st_size)]
            elif number:
                record = json.loads(path.read_bytes())
                if record["Completed"]:
                    begin = record["Offset"]
                    found.setdefault(parse_digest(name), []).append((begin, begin + record["Completed"]))
        return found

    def _count(self, there: dict[str, list[tuple[int, int]]], num_errors: int, was_killed: bool) -> None:
        """What came of an attempt that began with what was `there`."""
        now = self._completed()
        num_there = {digest: sum(end - start for start, end in ranges) for digest, ranges in there.items()}
        digests = {sent.digest for sent in self._registry.sent}
        self.found.resumed += sum(num_there.get(digest, 0) for digest in digests)
        if not self._knows_ranges or num_errors != self._num_errors():
            return  # what did not verify has been deleted, and whoever else pulls it begins anew
        for sent in self._registry.sent:
            overlaps = (
                min(sent.end, end) - max(sent.start, start) for start, end in there.get(sent.digest, ())
            )
            again = sum(overlap for overlap in overlaps if overlap > 1)  # one byte asks where the blob is
            self.found.fetched_again += again
        if was_killed:
            num_sent = sum(sent.end - sent.start for sent in self._registry.sent)
            came = sum(
                sum(end - start for start, end in now.get(digest, ())) - num_there.get(digest, 0)
                for digest in digests
            )
            if num_sent:
                self.found.lost.append(num_sent - came)

    def _verify(self, name: str, is_complete: bool) -> None:
        found = self.found.violations
        for path in self._root.glob("blobs/sha256-*"):
            if PARTIAL not in path.name:
                actual = hashlib.sha256(path.read_bytes()).hexdigest()
                if path.name != f"sha256-{actual}":
                    found.append(f"{name}: {path.name} is {actual}")
        listed = {str(model.name): model for model in self._store.list()}
        manifests = [path for path in self._root.glob("manifests/*/*/*/*") if path.suffix != ".tmp"]
        if len(listed) != len(manifests):
            found.append(f"{name}: {len(manifests)} manifests, {len(listed)} models")
        if is_complete and name not in listed:
            found.append(f"{name}: pulled, but not listed")
        if is_complete and list(self._root.glob(f"blobs/*{PARTIAL}*")):
            found.append(f"{name}: something is left")


def run(root: Path, count: int, seed: str) -> Findings:
    with Registry(Contents(root / "registry")) as registry:
        campaign = Campaign(root, registry, seed)
        for number in range(count):
            campaign.pull(number)
    errors = (root / "errors").read_text().splitlines() if (root / "errors").exists() else []
    campaign.found.errors.update(error.partition(":")[0] for error in errors)
    return campaign.found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", default="7")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        found = run(Path(directory), arguments.count, arguments.seed)
    print(f"{found.num_pulls} models pulled, {found.pulled} bytes, in {found.num_attempts} attempts")
    print(f"{found.num_kills} processes killed; errors: {dict(found.errors)}")
    lost = sorted(found.lost) or [0]
    print(f"gone on with {found.resumed} bytes, of which {found.fetched_again} were fetched again")
    print(f"lost in flight by a kill: {lost[len(lost) // 2]} bytes in the median, {lost[-1]} at most")
    print("\n".join(found.violations) or "nothing was wrong")
    sys.exit(bool(found.violations or found.fetched_again))


if __name__ == "__main__":
    main()
