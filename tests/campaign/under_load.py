"""Faults at random points of time while clients keep a daemon busy."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from tests.campaign.clients.asks import MODELS, asks, probe, session_ask
from tests.campaign.clients.http import ask, ask_json
from tests.campaign.clients.load import BOUND_S, Excuse, Load, fault_of, learn
from tests.campaign.daemon import Daemon
from tests.campaign.processes import is_running
from tests.campaign.results import Row
from tests.campaign.state import left_files, lost, settled

NORMAL_S = 2.0
"""By then a new request is answered as ever."""
_CLIENTS = 8
_DEATH_S = 2.0
SWITCHING = {"OLLAMA_MAX_LOADED_MODELS": "2", "PUNA_KV_IDLE": "0.3s", "OLLAMA_KEEP_ALIVE": "20s"}
"""Models fall asleep and wake, prefixes go to disk and come back."""


class Inflicted(NamedTuple):
    """What a fault was."""

    since_s: float
    """From when on it may be normal again (monotonic clock)."""
    wrong: Sequence[str] = ()
    """What was wrong already while it lasted."""


class Fault(NamedTuple):
    """Something that is done to a daemon."""

    name: str
    weight: int
    excuse: Excuse
    inflict: Callable[[Daemon, random.Random], Awaitable[Inflicted]]


def drawn(faults: Sequence[Fault], num_faults: int, seed: int) -> list[Fault]:
    """Faults in random order, each as often as its weight has it."""
    weights = [fault.weight for fault in faults]
    return random.Random(f"faults {seed}").choices(faults, weights, k=num_faults)


async def run_under_load(
    daemon: Daemon, faults: Sequence[Fault], seed: int, *, num_kills: int = 0
) -> list[Row]:
    """Inflicts one fault after the other. A row for each kind, and one for what is left at the end.

    num_kills: processes that may leave a half-written file.
    """
    end = Row("at the end: processes, descriptors, files")
    try:
        await daemon.start()
        load = Load(daemon, await learn_all(daemon), f"load {seed}")
        before = await _emptied(daemon)
        rows = await inflict_all(daemon, load, faults, seed)
        end.violations += await lost(daemon, load)
        after = await _emptied(daemon)
        if more := after - before:
            end.violations.append(
                f"more than before: {dict(more)}; before {dict(before)}, after {dict(after)}"
            )
        end.violations += await ended(daemon, num_kills)
        end.violations += load.violations  # between faults
        end.note = ", ".join(f"{count} {outcome}" for outcome, count in load.outcomes.most_common())
    finally:
        daemon.end()
    return [*rows, end]


async def inflict_all(daemon: Daemon, load: Load, faults: Sequence[Fault], seed: int) -> list[Row]:
    """At random points of time under load, which it starts and ends."""
    rng = random.Random(f"times {seed}")
    rows = {fault.name: Row(fault.name) for fault in faults}
    load.start(_CLIENTS)
    for fault in faults:
        await asyncio.sleep(rng.uniform(0.0, 0.4))
        await _inflict(daemon, load, fault, rows[fault.name], rng)
    await load.end()
    return list(rows.values())


async def learn_all(daemon: Daemon) -> dict[bytes, str]:
    """Of everything that a Load asks."""
    sessions = [session_ask(model, f"s{number}") for model in MODELS for number in range(6)]
    return await learn(daemon, [*asks(), *sessions, *(probe(model) for model in MODELS)])


async def normal_again(daemon: Daemon, load: Load, model: str, since_s: float) -> tuple[float, list[str]]:
    """(seconds until the first right answer, what is wrong about them)"""
    question = probe(model)
    wrong: list[str] = []
    while (now_s := time.monotonic()) < since_s + BOUND_S:
        try:
            answer = await asyncio.wait_for(
                ask(daemon.port, "POST", question.path, question.content), BOUND_S
            )
        except TimeoutError:
            return BOUND_S, ["a new request hangs"]
        outcome, problem = fault_of(question, answer, load.expected[question.content], load.excuse)
        wrong += [problem] if problem else []
        if outcome == "done":
            took_s = time.monotonic() - since_s
            late = [f"normal again only after {took_s:.2f} s"] if took_s > NORMAL_S else []
            return took_s, wrong + late
        await asyncio.sleep(0.005)
    return now_s - since_s, [*wrong, "no request succeeds any more"]


async def ended(daemon: Daemon, num_kills: int = 0) -> list[str]:
    """Has the daemon end; what is wrong about that, and about what it leaves."""
    wrong = []
    status = await daemon.stop()
    if status != 0:
        wrong.append(f"the daemon ends with {status}")
    if left := daemon.left_processes():
        wrong.append(f"processes are left: {left}")
    if len(files := left_files(daemon)) > num_kills:
        wrong.append(f"files are left: {files}")
    return wrong + [f"in the log: {text}" for text in daemon.tracebacks()]


async def _inflict(daemon: Daemon, load: Load, fault: Fault, row: Row, rng: random.Random) -> None:
    before, num_violations = Counter(load.outcomes), len(load.violations)
    old = list(daemon.processes())
    load.fault_begins(fault.excuse)
    since_s, already = await fault.inflict(daemon, rng)
    took_s, wrong = await normal_again(daemon, load, rng.choice(MODELS), since_s)
    wrong += already
    load.fault_is_over()
    if not is_running(old[0]):
        wrong += await _outliving(old)
    wrong += await lost(daemon, load)
    after = load.outcomes
    row.num_faults += 1
    row.num_failed += sum(after[outcome] - before[outcome] for outcome in ("error", "cut"))
    row.recoveries_s.append(took_s)
    row.violations += wrong + load.violations[num_violations:]
    del load.violations[num_violations:]


async def _outliving(old: list[int]) -> list[str]:
    """Processes that a dead daemon leaves."""
    left: list[int] = []
    for _ in range(int(_DEATH_S / 0.01)):
        if not (left := [pid for pid in old if is_running(pid)]):
            return []
        await asyncio.sleep(0.01)
    return [f"processes outlive the daemon: {left}"]


async def _emptied(daemon: Daemon) -> Counter[str]:
    """What the daemon has when it has no model, once it has done everything."""
    for model in MODELS:
        await ask_json(daemon.port, "POST", "/api/sessions/save", {"model": model, "name": "s0"})
    for model in MODELS:
        await ask_json(daemon.port, "POST", "/api/generate", {"model": model, "keep_alive": 0})
    return await settled(daemon)
