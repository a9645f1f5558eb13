"""A process that pulls, for others to kill."""

from __future__ import annotations

import asyncio
import multiprocessing
from multiprocessing.process import BaseProcess
from pathlib import Path

from puna.registry import ModelName, RegistryError, Store
from puna.registry.pull import pull
from puna.registry.remote.download import Patience
from puna.registry.remote.registry_pull import RegistryAccess
from puna.registry.store import partial_blob
from puna.registry.store.pruning import clear_up
from tests.descriptions import TINY_WEIGHTS

PART_BYTES = 256 << 10
_PATIENCE = Patience(after_nothing=(0.02,) * 6, after_some=0.01)

_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload([__name__])


def start_pull(root: Path, name: str, errors: Path) -> BaseProcess:
    """Begins to pull into the store at `root`, as a daemon does that has just been started.

    Its exit code is 0 for success, 1 for an error that a client would see, whose text is appended to
    `errors`.
    """
    process = _processes.Process(target=_run, args=(root, name, errors), daemon=True)
    process.start()
    return process


def _run(root: Path, name: str, errors: Path) -> None:
    partial_blob._MIN_PART_BYTES = PART_BYTES
    store = Store(root)
    clear_up(store, prunes=True)
    try:
        asyncio.run(_pull(store, ModelName.parse(name)))
    except RegistryError as error:
        with errors.open("a") as file:
            file.write(f"{error}\n")
        raise SystemExit(1) from None


async def _pull(store: Store, name: ModelName) -> None:
    async def describe(_: int) -> object:
        return TINY_WEIGHTS

    access = RegistryAccess(store.root / "no-key", insecure=True, patience=_PATIENCE, stall_s=0.3)
    async for _ in pull(store, name, describe, access):
        pass
