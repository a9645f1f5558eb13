"""What must outlive faults: models and saved sessions. What must not: everything that was only on the way."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from tests.campaign.clients.asks import MODELS, session_ask
from tests.campaign.clients.http import ask_json
from tests.campaign.clients.load import BOUND_S, Load
from tests.campaign.daemon import Daemon
from tests.campaign.processes import descriptors

_SETTLE_S = 40.0
_TEXT_WORKERS = 2
"""Those that are always there."""


async def lost(daemon: Daemon, load: Load) -> list[str]:
    """Models and saved sessions that are not there any more, or not as they were."""
    missing = []
    status, listed = await _ask(daemon, "GET", "/api/tags")
    names = {model["name"] for model in listed["models"]} if status == 200 else set()
    missing += [f"model {name} is lost ({status})" for name in MODELS if f"{name}:latest" not in names]
    if load.saved:
        model, name = next(iter(load.saved))
        status, said = await _ask(daemon, "POST", "/api/sessions/load", {"model": model, "name": name})
        if status != 200:
            missing.append(f"session {name} of {model} is lost: {status} {said}")
        elif not await load.check(load.saved.pop((model, name))):
            missing.append(f"session {name} of {model} does not answer")
        load.saved[model, name] = session_ask(model, name)  # the next time it is another's turn
    return missing


async def settled(daemon: Daemon) -> Counter[str]:
    """How many processes there are of each kind, and descriptors of the daemon, when it has come to rest."""
    before: Counter[str] = Counter()
    for _ in range(int(_SETTLE_S)):
        await asyncio.sleep(1.0)
        now = Counter([*daemon.processes().values(), *descriptors(daemon.pid)])
        if now == before and now["text"] <= _TEXT_WORKERS:
            break
        before = now
    return now


def left_files(daemon: Daemon) -> list[str]:
    """Half-written files under its home, and what is in its directory of temporary ones."""
    temporary = [path for path in daemon.temporary.rglob("*") if path.is_file()]
    return [str(path) for path in [*temporary, *daemon.root.rglob("*.tmp"), *daemon.root.rglob("*partial*")]]


async def _ask(daemon: Daemon, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    return await asyncio.wait_for(ask_json(daemon.port, method, path, body), BOUND_S)
