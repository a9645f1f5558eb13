"""The daemon's side of the process: starting and ending a worker."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from puna.worker.client import WorkerClient, WorkerDied
from puna.worker.launch import child_environment, python_command

_GRACE_S = 2.0
"""How long a worker may take to end by itself: the rest of a step."""


class WorkerSettings(Protocol):
    """What of puna.settings.Settings concerns a worker."""

    @property
    def num_threads(self) -> int | None: ...
    @property
    def kv_limit_bytes(self) -> int | None: ...
    @property
    def memory_limit_bytes(self) -> int | None: ...
    @property
    def elastic(self) -> bool: ...
    @property
    def context_length(self) -> int: ...
    @property
    def kv_type(self) -> str: ...
    @property
    def kv_idle_s(self) -> float: ...
    @property
    def kv_dir(self) -> Path: ...
    @property
    def kv_disk_bytes(self) -> int | None: ...
    @property
    def cache_policy(self) -> str: ...
    @property
    def multi_user_cache(self) -> bool: ...
    @property
    def max_running(self) -> int | None: ...
    @property
    def max_queue(self) -> int: ...


class WorkerProcess:
    """A worker, as a child of this process: it ends when this process does, however that happens."""

    def __init__(self, process: asyncio.subprocess.Process, client: WorkerClient) -> None:
        self.client = client
        self._process = process

    @classmethod
    async def start(cls, settings: WorkerSettings) -> WorkerProcess:
        """Waits until the worker is ready. Its log goes to our stderr. Raises OSError, WorkerDied."""
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                process = await _spawn(theirs, settings)
            except BaseException:
                ours.close()
                raise
        try:
            return cls(process, await WorkerClient.connect(ours))
        except WorkerDied:
            status = await process.wait()
            raise WorkerDied(f"the worker process ended at its start, with status {status}") from None
        except asyncio.CancelledError:
            await _end(process)
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    async def wait(self) -> int:
        """Waits for the end of the process. Its status: negative is a signal's number."""
        return await self._process.wait()

    async def terminate(self) -> None:
        """Ends the process; running requests fail. Does nothing if it has ended."""
        await self.client.close()
        try:
            await asyncio.wait_for(self._process.wait(), _GRACE_S)
        except TimeoutError:
            await _end(self._process)


def arguments_of(descriptor: int, settings: WorkerSettings) -> list[str]:
    """Of the worker's command line; `descriptor` is its end of the socket."""
    arguments = {
        "--socket-fd": descriptor,
        "--threads": settings.num_threads,
        "--kv-type": settings.kv_type,
        "--kv-bytes": settings.kv_limit_bytes,
        "--memory-bytes": settings.memory_limit_bytes,
        "--elastic": int(settings.elastic),
        "--static-context": settings.context_length or None,
        "--kv-idle": settings.kv_idle_s,
        "--kv-dir": None if settings.kv_disk_bytes == 0 else settings.kv_dir,
        "--kv-disk-bytes": settings.kv_disk_bytes,
        "--cache-policy": settings.cache_policy,
        "--multi-user-cache": int(settings.multi_user_cache),
        "--max-running": settings.max_running,
        "--max-queue": settings.max_queue,
    }
    return [f"{name}={value}" for name, value in arguments.items() if value is not None]


async def _spawn(connection: socket.socket, settings: WorkerSettings) -> asyncio.subprocess.Process:
    descriptor = connection.fileno()
    return await asyncio.create_subprocess_exec(
        *python_command("puna.worker", *arguments_of(descriptor, settings)),
        stdin=asyncio.subprocess.DEVNULL,
        env=child_environment(),
        pass_fds=[descriptor],
    )


async def _end(process: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError):
        process.kill()
    await process.wait()
