"""Runs the checks of every architecture, measures it beside llama.cpp, writes docs/models.md."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from pathlib import Path

import httpx
import msgspec

from benchmarks.machine import machine_today
from benchmarks.models.checks import Checks, run_checks
from benchmarks.models.enlarged import write_enlarged
from benchmarks.models.page import page
from benchmarks.models.speed import measure
from benchmarks.models.tokenizers import tokenizers_of
from benchmarks.servers.peer import Peer
from puna.backends.base import ModelLoadError
from puna.backends.cpu.cores import usable_cores
from puna.bench.measure import PROMPT_TOKENS, BenchError
from puna.models.measured import PATH, Measured, measured
from tests.tiny import ENCODERS, RANKERS, TINY, Tiny

_ROWS = TINY | ENCODERS | RANKERS
_PAGE = Path(__file__).parents[2] / "docs" / "models.md"


def main() -> None:
    arguments = _arguments()
    peer = Peer.find(arguments.peer)
    machine = f"{machine_today(arguments.threads)} Beside {peer.description}"
    first_rows: dict[str, Tiny] = {}
    for tiny in (TINY | ENCODERS).values():
        first_rows.setdefault(tiny.architecture, tiny)
    found = measured() if PATH.exists() else {}
    with tempfile.TemporaryDirectory() as folder:
        if not arguments.no_checks:
            found = _checked(run_checks(Path(folder) / "tests.xml", _ROWS), found)
        names = arguments.architectures or list(first_rows)
        if arguments.missing:
            names = [name for name in names if name not in found or found[name].prefill is None]
        elif not arguments.architectures:  # none of another day or machine beside this one's
            found = {name: _without_speed(one) for name, one in found.items()}
        _write(found, machine)
        for name in names:
            before = found.get(name, Measured(tokenizers=tokenizers_of(name)))
            found[name] = _timed(
                Path(folder) / "model.gguf", first_rows[name], before, peer, arguments.threads
            )
            _write(found, machine)


def _checked(results: dict[str, Checks], before: dict[str, Measured]) -> dict[str, Measured]:
    """Rows of one architecture are its variants."""
    oracle: dict[str, Counter[str]] = {}
    batches: dict[str, Counter[str]] = {}
    for row, checks in results.items():
        name = _ROWS[row].architecture
        for kind, counts in checks.items():
            (batches if kind == "batches" else oracle).setdefault(name, Counter()).update(counts)
    return {
        name: msgspec.structs.replace(
            before.get(name, Measured(tokenizers=tokenizers_of(name))),
            tokenizers=tokenizers_of(name),
            oracle=_counted(oracle.get(name, Counter())),
            batches=_counted(batches.get(name, Counter())),
        )
        for name in sorted({tiny.architecture for tiny in _ROWS.values()})
    }


def _without_speed(one: Measured) -> Measured:
    return Measured(tokenizers=one.tokenizers, oracle=one.oracle, batches=one.batches)


def _counted(counts: Counter[str]) -> tuple[int, int]:
    return counts["passed"], counts.total()


def _timed(path: Path, tiny: Tiny, before: Measured, peer: Peer, threads: int) -> Measured:
    """As before if one of the two cannot run it."""
    try:
        weight_type = write_enlarged(path, tiny)
        speed = measure(path, tiny.architecture, peer, threads)
    except (BenchError, ModelLoadError, httpx.HTTPError, RuntimeError, ValueError) as error:
        print(f"{tiny.architecture}: {error}", file=sys.stderr, flush=True)
        return before
    print(f"{tiny.architecture}: {speed}", file=sys.stderr, flush=True)
    return msgspec.structs.replace(
        before,
        weight_type=weight_type,
        prefill=round(speed.prefill, 2),
        decode=None if speed.decode is None else round(speed.decode, 2),
        kv_bytes_per_token=speed.kv_bytes_per_token,
        fixed_bytes=speed.fixed_bytes,
    )


def _write(found: dict[str, Measured], machine: str) -> None:
    PATH.write_bytes(msgspec.json.format(msgspec.json.encode(found, order="sorted"), indent=1) + b"\n")
    _PAGE.write_text(page(found, machine, PROMPT_TOKENS))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("architectures", nargs="*", help="to be measured; all by default")
    parser.add_argument("--no-checks", action="store_true", help="keeps what tests said before")
    parser.add_argument(
        "--missing", action="store_true", help="measures what has no figures, as after an interruption"
    )
    parser.add_argument("--peer", type=Path, help="a llama-server to compare with")
    parser.add_argument("--threads", type=int, default=usable_cores())
    return parser.parse_args()


if __name__ == "__main__":
    main()
