"""One model: does it cost anything that its KV memory comes and goes?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from statistics import median

from benchmarks.figures import Row, Target, median_interval, percent, rate
from benchmarks.memory.daemon import Daemon
from benchmarks.memory.static import static_kv_bytes
from benchmarks.scenario import Finding, Findings, Setup
from benchmarks.servers.prompts import Prompts
from benchmarks.servers.servers import Puna, Server, puna_server
from benchmarks.weights.files import BenchFile, bench_file
from benchmarks.workloads import WORKLOADS, EndedEarly, Workload

_SLOTS, _CONTEXT_TOKENS = 4, 2048
# As a server at work has it: nothing is given back between two requests.
_SAME = {
    "OLLAMA_NUM_PARALLEL": str(_SLOTS),
    "OLLAMA_CONTEXT_LENGTH": str(_CONTEXT_TOKENS),
    "PUNA_KV_IDLE": "1h",
}
_STATIC = {"OLLAMA_KVCACHED_ENABLED": "false"}

# Prompts are recorded, as they always are, though none begins like another: so what was cached makes way.
_DECODE, _PREFILL = (replace(WORKLOADS[name], same_prompt=True) for name in ("decode", "prefill"))


@dataclass(frozen=True)
class _Figure:
    """before: what happens to the elastic daemon before each measurement."""

    title: str
    workload: Workload
    target: Target | None = None
    before: Callable[[Puna], None] = lambda _: None


_FIGURES = [
    _Figure("decode, elastic against static", _DECODE, Target(0.01, is_least=False, show=percent)),
    _Figure("prefill, elastic against static", _PREFILL, Target(0.02, is_least=False, show=percent)),
    _Figure(
        "prefill when all KV memory has to come from the system",
        _PREFILL,
        before=lambda puna: Daemon(puna.url).trim(),
    ),
]


@dataclass
class Rates:
    """Tokens per second; elastic[i] and static[i] are of the same prompt, one right after the other."""

    elastic: list[float] = field(default_factory=list)
    static: list[float] = field(default_factory=list)
    peer: list[float] = field(default_factory=list)


def measure(setup: Setup) -> Findings:
    file = bench_file("Q4_0")
    prompts = Prompts(file.path)
    rates = [Rates() for _ in _FIGURES]
    # Where a process' memory lies makes a difference, too, hence several of each.
    for _ in range(1 if setup.quick else 4):
        _alternate(setup, file, prompts, rates, rounds=3 if setup.quick else 20)
    with setup.peer.server(file, setup.threads, 1, "default") as other:
        other.complete(prompts.take(32), 2)
        for figure, of in zip(_FIGURES, rates, strict=True):
            of.peer += [_rate(figure.workload, other, prompts) for _ in range(2 if setup.quick else 5)]
    title = f"one model, elastic against static reservation, {file.title}"
    yield from (Finding(title, _row(*of)) for of in zip(_FIGURES, rates, strict=True))


def _alternate(setup: Setup, file: BenchFile, prompts: Prompts, rates: Sequence[Rates], rounds: int) -> None:
    """In the life of two daemons, of which one works and the other sleeps."""
    same_size = {"OLLAMA_KVCACHED_MEMORY_GB": f"{static_kv_bytes(file, _CONTEXT_TOKENS, _SLOTS)}B"}
    with (
        puna_server(file, setup.threads, _SAME | same_size) as elastic,
        puna_server(file, setup.threads, _SAME | _STATIC) as static,
    ):
        for server in (elastic, static):
            for _ in range(_SLOTS * _CONTEXT_TOKENS // _PREFILL.prompt_tokens + 1):  # its memory is full
                server.complete(prompts.take(_PREFILL.prompt_tokens), 1)
        for i in range(rounds):
            for figure, of in zip(_FIGURES, rates, strict=True):
                turns = [(elastic, of.elastic), (static, of.static)]
                _ask_both(figure, turns if i % 2 else turns[::-1], prompts)


def _ask_both(figure: _Figure, turns: Sequence[tuple[Puna, list[float]]], prompts: Prompts) -> None:
    while True:
        text = prompts.take(figure.workload.prompt_tokens)
        with suppress(EndedEarly):
            measured = []
            for server, _ in turns:
                figure.before(server)
                measured.append(figure.workload.run(server, [text]))
            for value, (_, values) in zip(measured, turns, strict=True):
                values.append(value)
            return


def _rate(workload: Workload, server: Server, prompts: Prompts) -> float:
    while True:
        with suppress(EndedEarly):
            return workload.run(server, [prompts.take(workload.prompt_tokens)])


def _row(figure: _Figure, rates: Rates) -> Row:
    slower = [static / elastic - 1 for elastic, static in zip(rates.elastic, rates.static, strict=True)]
    low, high = median_interval(slower)
    ours, theirs = median(rates.elastic), median(rates.peer)
    text = (
        f"{rate(ours)}, static {rate(median(rates.static))}: {percent(median(slower))} more time "
        f"(median of {len(slower)} pairs, 95% between {percent(low)} and {percent(high)})"
    )
    return Row(figure.title, text, rate(theirs), ours / theirs, figure.target, median(slower))
