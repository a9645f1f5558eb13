"""One file, both servers: finds llama.cpp's best setting for each row, then asks the two in turn."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from statistics import median

from benchmarks.servers.peer import SETTINGS, Peer
from benchmarks.servers.prompts import Prompts
from benchmarks.servers.servers import Server, puna_server
from benchmarks.weights.files import BenchFile
from benchmarks.workloads import WORKLOADS, EndedEarly, Workload, shortened
from puna.bench.cost import Cost, model_cost
from puna.bench.machine import Roofs
from puna.gguf import GgufFile

_MAX_TRIES = 8


@dataclass
class Row:
    """Tokens per second of each round."""

    setting: str
    roof: str = ""
    """What the machine bounds puna by, and how much of that it reaches."""
    puna: list[float] = field(default_factory=list)
    llamacpp: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Plan:
    """rows: keys of WORKLOADS. search: whether llama.cpp's settings are compared, or the default taken."""

    rows: Sequence[str]
    rounds: int
    threads: int
    search: bool
    roofs: Roofs


def compare(file: BenchFile, peer: Peer, plan: Plan, done: Callable[[str, Row], None]) -> None:
    """Calls done(row, its result) for each row of the plan."""
    prompts = Prompts(file.path)
    with GgufFile(file.path) as gguf:
        cost = model_cost(gguf)
    best = _best_settings(file, peer, plan, prompts)
    servers_of: dict[tuple[str, int], list[str]] = {}
    for name in plan.rows:
        servers_of.setdefault((best[name], WORKLOADS[name].num_clients), []).append(name)
    with puna_server(file, plan.threads) as puna:
        _warm_up(puna, prompts)
        for (setting, clients), names in servers_of.items():
            with peer.server(file, plan.threads, clients, setting) as other:
                _warm_up(other, prompts)
                for name in names:
                    row = Row(setting)
                    _alternate(WORKLOADS[name], puna, other, prompts, plan.rounds, row)
                    if not row.puna:
                        _say(f"{file.title}: {name}: left out, the model's answers all ended early")
                        continue
                    row.roof = _of_roof(name, median(row.puna), cost, plan.roofs)
                    _say(f"{file.title}: {name}: {_rates(row.puna)}; {setting}: {_rates(row.llamacpp)}")
                    done(name, row)


def _best_settings(file: BenchFile, peer: Peer, plan: Plan, prompts: Prompts) -> dict[str, str]:
    """Row -> the setting with which llama.cpp is fastest."""
    if not plan.search:
        return dict.fromkeys(plan.rows, "default")
    rates: dict[str, dict[str, float]] = {name: {} for name in plan.rows}
    for setting in SETTINGS:
        for name, rate in _probe_all(setting, file, peer, plan, prompts):
            rates[name][setting] = rate
    best = {name: max(of_row, key=lambda setting: of_row[setting]) for name, of_row in rates.items()}
    for name, of_row in rates.items():
        text = ", ".join(f"{setting} {rate:.0f}" for setting, rate in of_row.items())
        _say(f"{file.title}: {name}: llama.cpp's settings: {text}")
    return best


def _probe_all(
    setting: str, file: BenchFile, peer: Peer, plan: Plan, prompts: Prompts
) -> Iterator[tuple[str, float]]:
    """(row, tokens per second of llama.cpp) of the plan's rows."""
    for clients in sorted({WORKLOADS[name].num_clients for name in plan.rows}):
        # Twice where that takes seconds: a setting should not win or lose by chance.
        tries = 1 if file.is_large or clients > 1 else 2
        with peer.server(file, plan.threads, clients, setting) as server:
            _warm_up(server, prompts)
            for name in plan.rows:
                if WORKLOADS[name].num_clients == clients:
                    workload = shortened(name, is_large=file.is_large)
                    yield name, max(_probe(workload, server, prompts) for _ in range(tries))


def _probe(workload: Workload, server: Server, prompts: Prompts) -> float:
    for _ in range(_MAX_TRIES):
        with suppress(EndedEarly):
            return workload.run(server, _take(workload, prompts))
    return 0.0


def _alternate(
    workload: Workload, puna: Server, other: Server, prompts: Prompts, rounds: int, row: Row
) -> None:
    """Both get the same prompts; new ones in each round, unless the workload says otherwise."""
    texts = _take(workload, prompts)
    for _ in range(rounds + _MAX_TRIES):
        if len(row.puna) == rounds:
            return
        if not workload.same_prompt:
            texts = _take(workload, prompts)
        try:
            rates = workload.run(puna, texts), workload.run(other, texts)
        except EndedEarly:
            texts = _take(workload, prompts)
            continue
        row.puna.append(rates[0])
        row.llamacpp.append(rates[1])


def _of_roof(name: str, rate: float, cost: Cost, roofs: Roofs) -> str:
    """rate: tokens per second. Of the matrices' operations where a prompt is computed, of their bytes where a
    token is; several clients do both.
    """
    if name == "prefill":
        num_tokens = WORKLOADS[name].prompt_tokens
        share = rate * cost.ops(num_tokens, 1) / num_tokens / roofs.ops_per_second
        return f"{share:.0%} of the integer peak"
    if name == "decode":
        return f"{rate * cost.bytes_read(1) / roofs.bytes_per_second:.0%} of memory"
    return ""


def _take(workload: Workload, prompts: Prompts) -> list[str]:
    return [prompts.take(workload.prompt_tokens) for _ in range(workload.num_clients)]


def _warm_up(server: Server, prompts: Prompts) -> None:
    """The first pass reads the file from disk and, in llama.cpp, decides on buffers."""
    server.complete(prompts.take(32), 2)


def _rates(rates: list[float]) -> str:
    return " ".join(f"{rate:.0f}" if rate >= 100 else f"{rate:.1f}" for rate in rates)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
