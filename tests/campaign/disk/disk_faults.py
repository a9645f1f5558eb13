"""Disks that hang while they are needed, and disks that are full at each single write."""

from __future__ import annotations

import asyncio
import hashlib
import random
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from tests.campaign.clients.asks import MODELS, probe, session_ask
from tests.campaign.clients.http import Answer, ask, ask_json
from tests.campaign.clients.load import BOUND_S, Load, learn
from tests.campaign.daemon import Daemon
from tests.campaign.disk.disk import Disk
from tests.campaign.results import Row
from tests.campaign.state import lost
from tests.campaign.store import make_store
from tests.campaign.under_load import (
    NORMAL_S,
    SWITCHING,
    Fault,
    Inflicted,
    ended,
    normal_again,
    run_under_load,
)
from tests.tiny import TINY, write_tiny

_MAX_HANG_S = 3.0
_EVERYTHING = "the disk of models and state hangs, up to 3 s"
_STATE = "the disk of state hangs, up to 3 s"


async def run_hangs(root: Path, num_faults: int, seed: int) -> list[Row]:
    """Once the disk of models and everything else, once only that of prefixes and sessions."""
    rows = []
    for everything in (True, False):
        here = root / ("everything" if everything else "state")
        disk = Disk(here / "backing", here / "disk")
        try:
            models = make_store((here / "disk" if everything else here) / "models", here)
            switching = SWITCHING if everything else {}
            daemon = Daemon(here, models, {"HOME": str(here / "disk"), **switching})
            fault = Fault(_EVERYTHING if everything else _STATE, 1, "nothing", _hang(disk, not everything))
            rows += await run_under_load(daemon, [fault] * num_faults, seed)
        finally:
            disk.close()
    return rows


async def run_full(root: Path, num_faults: int, seed: int) -> list[Row]:
    """At each write of what a client may have written, from the first to the last, the disk gets full."""
    disk = Disk(root / "backing", root / "disk")
    row, end = Row("disk full from the n-th write on"), Row("at the end: processes, files")
    try:
        models = make_store(root / "disk" / "models", root)
        daemon = Daemon(root, models, {"HOME": str(root / "disk"), "PUNA_KV_IDLE": "0.1s"})
        try:
            await daemon.start()
            sessions = [session_ask(model, f"s{number}") for model in MODELS for number in range(6)]
            load = Load(daemon, await learn(daemon, [*sessions, *map(probe, MODELS)]), "")
            for number in (-2, -1):  # of the first one, directories are left
                before = await _quiet(disk)
                row.violations += await _write_everything(daemon, load, number, may_fail=False)
            num_writes = await _quiet(disk) - before
            numbers = range(num_writes + 1)
            if num_faults < len(numbers):
                numbers = sorted(random.Random(seed).sample(numbers, num_faults))
            for number in numbers:
                await _fill_at(disk, daemon, load, number, row)
            row.note = f"of {num_writes} writes"
            row.num_failed = load.outcomes["error"]
            row.violations += load.violations
            end.violations += await ended(daemon)
        finally:
            daemon.end()
    finally:
        disk.close()
    return [row, end]


def _hang(disk: Disk, models_answer: bool) -> Callable[[Daemon, random.Random], Awaitable[Inflicted]]:
    """models_answer: they do so while it hangs; the daemon does in any case."""
    paths = [("GET", "/api/version", b"")]
    if models_answer:
        paths += [("POST", question.path, question.content) for question in map(probe, MODELS)]

    async def inflict(daemon: Daemon, rng: random.Random) -> Inflicted:
        seconds = rng.uniform(0.3, _MAX_HANG_S)
        end_s = time.monotonic() + seconds
        disk.hang(seconds)
        wrong = []
        while time.monotonic() < end_s:
            method, path, content = rng.choice(paths)
            began_s = time.monotonic()
            answer = await asyncio.wait_for(ask(daemon.port, method, path, content), BOUND_S)
            took_s = time.monotonic() - began_s
            if answer.status != 200 or took_s > NORMAL_S:
                wrong.append(f"while the disk hangs: {path}, {took_s:.1f} s: {answer}")
            await asyncio.sleep(0.05)
        return Inflicted(end_s, wrong)

    return inflict


async def _fill_at(disk: Disk, daemon: Daemon, load: Load, number: int, row: Row) -> None:
    await _quiet(disk)
    disk.fill(number)
    load.fault_begins("errors")
    row.violations += await _write_everything(daemon, load, number, may_fail=True)
    took_s, wrong = await normal_again(daemon, load, MODELS[0], time.monotonic())
    row.violations += [f"disk full at write {number}: {text}" for text in wrong]
    disk.free()
    load.fault_is_over()
    took_s, wrong = await normal_again(daemon, load, MODELS[1], time.monotonic())
    wrong += await lost(daemon, load)
    row.violations += [f"after the disk was full at write {number}: {text}" for text in wrong]
    row.num_faults += 1
    row.recoveries_s.append(took_s)


async def _write_everything(daemon: Daemon, load: Load, number: int, *, may_fail: bool) -> list[str]:
    """Uploads a model, makes it known, has sessions and prefixes written, removes it; what is wrong."""
    wrong: list[str] = []

    async def step(method: str, path: str, body: object) -> bool:
        status, said = await asyncio.wait_for(ask_json(daemon.port, method, path, body), BOUND_S)
        error = said.get("error", "") if isinstance(said, dict) else ""
        if status < 400 and status and not error:
            return True
        load.outcomes["error"] += 1
        if not may_fail or not error:
            wrong.append(f"{path}: {status} {said}")
        return False

    name = MODELS[number % len(MODELS)]
    session = f"s{number % 6}"
    known = session_ask(name, session)
    salted = known._replace(body={**known.body, "cache_salt": f"{number}"})  # nothing of it is on disk yet
    load.expected[salted.content] = load.expected[known.content]
    if await load.check(salted) and await step(
        "POST", "/api/sessions/save", {"model": name, "name": session}
    ):
        load.saved[name, session] = known
    content = _weights(daemon.root, number)
    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
    uploaded = await _upload(daemon, digest, content)
    if uploaded.status not in (200, 201) and (not may_fail or b'"error"' not in uploaded.content):
        wrong.append(f"upload: {uploaded}")
    body = {"model": "new", "files": {"new.gguf": digest}, "stream": False}
    if uploaded.status in (200, 201) and await step("POST", "/api/create", body):
        question = probe("new")
        answer = await ask(daemon.port, "POST", question.path, question.content)
        if not answer.is_whole or b'"error"' in answer.content:
            wrong.append(f"a new model does not answer: {answer}")
        await step("POST", "/api/generate", {"model": "new", "keep_alive": 0})
    await step("POST", "/api/generate", {"model": name, "keep_alive": 0})
    _, listed = await ask_json(daemon.port, "GET", "/api/tags")
    if any(model["name"] == "new:latest" for model in listed["models"]):
        await step("DELETE", "/api/delete", {"model": "new"})
    return wrong


async def _quiet(disk: Disk) -> int:
    """Writes so far, when there have been none for a while."""
    before = -1
    while disk.num_writes != before:
        before = disk.num_writes
        await asyncio.sleep(0.3)
    return before


async def _upload(daemon: Daemon, digest: str, content: bytes) -> Answer:
    return await asyncio.wait_for(ask(daemon.port, "POST", f"/api/blobs/{digest}", content), BOUND_S)


def _weights(directory: Path, number: int) -> bytes:
    path = directory / "new.gguf"
    if not path.exists():
        write_tiny(path, TINY["llama"], seed=99)
    return path.read_bytes() + f"{number}".encode()
