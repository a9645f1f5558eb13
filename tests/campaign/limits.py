"""Too few descriptors, too little memory, and a clock that jumps."""

from __future__ import annotations

import asyncio
import ctypes
import mmap
import os
import random
import resource
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from puna.config.cgroup import control_groups, read_text
from tests.campaign.daemon import Daemon
from tests.campaign.results import Row
from tests.campaign.store import make_store
from tests.campaign.under_load import SWITCHING, Fault, Inflicted, run_under_load

_ENOUGH, _FEW = 256, 96
"""Descriptors: with so few some requests may find none."""
_MEMORY_BYTES = 320 << 20
_LEAST_BYTES = 130 << 20
_HELD_S = 1.0
_DAY_S = 86400


async def run_descriptors(root: Path, num_faults: int, seed: int) -> list[Row]:
    """Far more connections than there are descriptors, again and again."""
    rows = []
    for limit in (_ENOUGH, _FEW):
        here = root / f"{limit}"
        here.mkdir()
        daemon = Daemon(here, make_store(here / "models", here), SWITCHING, lambda limit=limit: _limit(limit))
        fault = Fault(f"400 connections, {limit} descriptors", 1, "errors", _connect)
        rows += await run_under_load(daemon, [fault] * num_faults, seed)
    return rows


async def run_memory(root: Path, num_faults: int, seed: int) -> list[Row]:
    """A control group whose limit goes down, below what is in use, and up again."""
    models = make_store(root / "models", root, large_kv=True)
    with _control_group() as (group, limit_name):
        limit = group / limit_name

        async def squeeze(_daemon: Daemon, rng: random.Random) -> Inflicted:
            for _ in range(5):
                with suppress(OSError):  # what is in use cannot all be taken away
                    limit.write_text(str(rng.randrange(_LEAST_BYTES, _MEMORY_BYTES)))
                await asyncio.sleep(rng.uniform(0, _HELD_S))
            limit.write_text(str(_MEMORY_BYTES))
            return Inflicted(time.monotonic())

        limit.write_text(str(_MEMORY_BYTES))
        daemon = Daemon(root, models, SWITCHING, lambda: _enter(group))
        fault = Fault("memory limit of the control group goes down", 1, "errors", squeeze)
        rows = await run_under_load(daemon, [fault] * num_faults, seed)
        hits = _event(group, "memory.events", "max") or int(read_text(group / "memory.failcnt") or 0)
        killed = _event(group, "memory.events", "oom_kill") or _event(group, "memory.oom_control", "oom_kill")
        rows[0].note = f"limit met {hits} times, {killed} processes killed by the system"
        return rows


async def run_clock(root: Path, num_faults: int, seed: int) -> list[Row]:
    """The time of day jumps by up to ten years; the monotonic clock does not, as Linux promises."""
    control = root / "clock"
    control.write_bytes(bytes(8))
    with control.open("r+b") as file:
        ahead_s = ctypes.c_int64.from_buffer(mmap.mmap(file.fileno(), 8))

    async def jump(_daemon: Daemon, rng: random.Random) -> Inflicted:
        ahead_s.value = rng.choice((-1, 1)) * rng.choice((1, 3600, _DAY_S, 3650 * _DAY_S))
        return Inflicted(time.monotonic())

    preload = {"LD_PRELOAD": str(_compile_clock(root, control))}
    daemon = Daemon(root, make_store(root / "models", root), {**SWITCHING, **preload})
    fault = Fault("the time of day jumps", 1, "nothing", jump)
    return await run_under_load(daemon, [fault] * num_faults, seed)


def _limit(num_descriptors: int) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (num_descriptors, num_descriptors))


async def _connect(daemon: Daemon, rng: random.Random) -> Inflicted:
    """Connections that send nothing, or half a request."""
    connections = []
    for _ in range(400):
        connection = socket.socket()
        connection.setblocking(False)
        with suppress(BlockingIOError):
            connection.connect(("127.0.0.1", daemon.port))
        connections.append(connection)
    await asyncio.sleep(0.1)
    for connection in connections:
        if rng.random() < 0.5:
            with suppress(OSError):
                connection.send(b"POST /api/generate HTTP/1.1\r\nHost: 127.0.0.1\r\n")
    await asyncio.sleep(rng.uniform(0.1, 2 * _HELD_S))
    for connection in connections:
        connection.close()
    return Inflicted(time.monotonic())


@contextmanager
def _control_group() -> Iterator[tuple[Path, str]]:
    """A new group below ours, and the name of its file with the limit. Raises OSError where none can be."""
    for version, name in ((2, "memory.max"), (1, "memory.limit_in_bytes")):
        for parent in control_groups("memory", version):  # type: ignore[arg-type]
            group = parent / f"puna-campaign-{os.getpid()}"
            with suppress(OSError):
                group.mkdir()
            if not group.is_dir():
                continue
            try:
                if (group / name).exists():
                    yield group, name
                    return
            finally:
                group.rmdir()
    raise OSError("no control group with a memory limit can be made here")


def _enter(group: Path) -> None:
    (group / "cgroup.procs").write_text(str(os.getpid()))


def _event(group: Path, file: str, name: str) -> int:
    """A count that the group keeps; 0 if it keeps none."""
    with suppress(OSError):
        lines = (line.split() for line in (group / file).read_text().splitlines())
        return next((int(words[1]) for words in lines if words[0] == name), 0)
    return 0


def _compile_clock(directory: Path, control: Path) -> Path:
    """Raises OSError without a C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise OSError("there is no C compiler for a clock that jumps")
    library = directory / "clock.so"
    source = Path(__file__).with_name("clock.c")
    command = [compiler, "-shared", "-fPIC", "-O1", f'-DCONTROL="{control}"', "-o", str(library), str(source)]
    subprocess.run(command, check=True)
    return library
