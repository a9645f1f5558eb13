"""`puna bench`: how fast a model runs in this process, beside what the machine could do."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from puna.backends.base import ModelLoadError
from puna.bench.machine import Machine, Roofs, describe_machine
from puna.bench.measure import Bench, BenchError, Result
from puna.cli.client import Client
from puna.cli.errors import CliError
from puna.cli.models.import_gguf import is_path
from puna.cli.output.human import human_size
from puna.cli.output.json import print_json
from puna.cli.output.table import table
from puna.cli.output.terminal import one_line
from puna.config.settings import Settings
from puna.gguf import GgufError
from puna.local import find_model
from puna.registry.errors import RegistryError


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What `--json` prints."""

    model: str
    machine: Machine
    roofs: Roofs
    results: list[Result]


def bench(model: str, settings: Settings, *, as_json: bool = False) -> None:
    """Prints the table. Raises CliError."""
    if not model:
        raise CliError("bench needs a MODEL, or --info")
    _warn_of_running_models(settings)
    try:
        path, *_ = find_model(Path(model).expanduser() if is_path(model) else model)
        with Bench(
            path,
            num_threads=settings.num_threads,
            kv_limit_bytes=settings.kv_limit_bytes,
            kv_type=settings.kv_type,
        ) as run:
            report = _measure(model, run)
    except (RegistryError, GgufError, ModelLoadError, BenchError) as error:
        raise CliError(str(error)) from error
    if as_json:
        print_json(report)
    else:
        print(describe_report(report))


def show_machine(settings: Settings, *, as_json: bool = False) -> None:
    """Prints what was found and chosen."""
    machine = describe_machine(settings.num_threads)
    if as_json:
        print_json(machine)
    else:
        print(describe(machine))


def describe(machine: Machine) -> str:
    rows = [
        ["processor", machine.cpu],
        ["threads", f"{machine.num_threads} of {machine.num_cpus}"],
        ["instruction set", f"{machine.isa} (of {', '.join(machine.isas)})"],
        ["features", " ".join(machine.features)],
        ["memory", f"{human_size(machine.memory_bytes)}, {human_size(machine.available_bytes)} available"],
    ]
    return table(rows)


def describe_report(report: Report) -> str:
    """The machine, its roofs, and a line for each measurement."""
    machine, roofs = report.machine, report.roofs
    rows = [["WORK", "TOKENS/S", "GOP/S", "OF PEAK", "GB/S", "OF MEMORY"]]
    rows += [_row(result, roofs) for result in report.results]
    return "\n".join(
        [
            f"{report.model} with {machine.num_threads} threads ({machine.isa}) on {machine.cpu}",
            f"peak {roofs.ops_per_second / 1e9:.0f} Gop/s, memory {roofs.bytes_per_second / 1e9:.1f} GB/s",
            "",
            table(rows),
        ]
    )


def _row(result: Result, roofs: Roofs) -> list[str]:
    rate, ops, num_bytes = result.tokens_per_second, result.ops_per_second, result.bytes_per_second
    return [
        result.work.title,
        f"{rate:.0f}" if rate >= 100 else f"{rate:.1f}",
        f"{ops / 1e9:.0f}",
        f"{ops / roofs.ops_per_second:.0%}",
        f"{num_bytes / 1e9:.1f}" if num_bytes else "",
        f"{num_bytes / roofs.bytes_per_second:.0%}" if num_bytes else "",
    ]


def _measure(model: str, run: Bench) -> Report:
    with _progress() as show:
        show("what the machine can do")
        roofs = run.roofs()
        results = []
        for work in run.works():
            show(work.title)
            results.append(run.run(work))
    return Report(model=model, machine=describe_machine(run.num_threads), roofs=roofs, results=results)


@contextmanager
def _progress() -> Iterator[_Progress]:
    progress = _Progress()
    try:
        yield progress
    finally:
        progress.clear()


class _Progress:
    """One line that says what is being measured, on a terminal only."""

    _CLEAR = "\r\033[K"

    def __call__(self, text: str) -> None:
        if sys.stderr.isatty():
            print(f"{self._CLEAR}measuring: {text} ...", end="", file=sys.stderr, flush=True)

    def clear(self) -> None:
        if sys.stderr.isatty():
            print(self._CLEAR, end="", file=sys.stderr, flush=True)


def _warn_of_running_models(settings: Settings) -> None:
    """They compute at the same time, for whoever asks them."""
    try:
        with Client(settings.host) as client:
            loaded = [str(model["name"]) for model in client.get("/api/ps").get("models") or []]
    except CliError:
        return  # no server, no disturbance
    if loaded:
        names = one_line(", ".join(loaded))
        print(f"Warning: the server has {names} loaded; requests to it disturb the figures", file=sys.stderr)
