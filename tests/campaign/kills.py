"""Processes that are killed, or stopped for a while, at random points under load."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

from tests.campaign.daemon import Daemon
from tests.campaign.under_load import Fault, Inflicted

_START_S = 5.0


def _kill(kind: str) -> Callable[[Daemon, random.Random], Awaitable[Inflicted]]:
    async def kill(daemon: Daemon, rng: random.Random) -> Inflicted:
        return _signal(await _any(daemon, kind, rng), signal.SIGKILL)

    return kill


async def _kill_children(daemon: Daemon, rng: random.Random) -> Inflicted:
    pids = [pid for pid in daemon.processes() if pid != daemon.pid]
    rng.shuffle(pids)
    for pid in pids:
        _signal(pid, signal.SIGKILL)
    return Inflicted(time.monotonic())


async def _kill_engine_twice(daemon: Daemon, rng: random.Random) -> Inflicted:
    _signal(await _any(daemon, "engine", rng), signal.SIGKILL)
    await asyncio.sleep(rng.uniform(0.0, 0.4))
    return _signal(await _any(daemon, "engine", rng), signal.SIGKILL)


async def _kill_daemon(daemon: Daemon, rng: random.Random) -> Inflicted:
    """It is started again as a service manager does."""
    began_s = time.monotonic()
    daemon.kill()
    await asyncio.sleep(rng.choice((0.0, 0.1)))
    await daemon.start()
    return Inflicted(began_s)


def _stop(kind: str) -> Callable[[Daemon, random.Random], Awaitable[Inflicted]]:
    async def stop(daemon: Daemon, rng: random.Random) -> Inflicted:
        pid = await _any(daemon, kind, rng)
        _signal(pid, signal.SIGSTOP)
        await asyncio.sleep(rng.uniform(0.05, 1.0))
        return _signal(pid, signal.SIGCONT)

    return stop


KILLS = (
    Fault("kill -9 of the engine worker", 8, "errors", _kill("engine")),
    Fault("kill -9 of a text worker", 8, "nothing", _kill("text")),
    Fault("kill -9 of the text zygote", 4, "nothing", _kill("zygote")),
    Fault("kill -9 of all children", 2, "errors", _kill_children),
    Fault("kill -9 of the engine worker, and of the next", 2, "errors", _kill_engine_twice),
    Fault("kill -9 of the daemon, restart", 4, "cuts", _kill_daemon),
)
STOPS = (
    Fault("engine worker stopped, up to 1 s", 2, "nothing", _stop("engine")),
    Fault("text worker stopped, up to 1 s", 2, "nothing", _stop("text")),
    Fault("text zygote stopped, up to 1 s", 1, "nothing", _stop("zygote")),
    Fault("daemon stopped, up to 1 s", 1, "nothing", _stop("daemon")),
)


async def _any(daemon: Daemon, kind: str, rng: random.Random) -> int:
    """Waits until there is one. Raises RuntimeError."""
    for _ in range(int(_START_S / 0.005)):
        if found := sorted(pid for pid, its_kind in daemon.processes().items() if its_kind == kind):
            return rng.choice(found)
        await asyncio.sleep(0.005)
    raise RuntimeError(f"there is no {kind} process")


def _signal(pid: int, number: signal.Signals) -> Inflicted:
    """When it was sent."""
    with suppress(ProcessLookupError):
        os.kill(pid, number)
    return Inflicted(time.monotonic())
