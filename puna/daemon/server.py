"""`puna serve`: the socket, the HTTP server around the runtime, and a shutdown that leaves nothing behind."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import uvloop
from starlette.types import ASGIApp

import puna
from puna.config.settings import Settings
from puna.daemon.kvcached import lending
from puna.daemon.listening import CannotListen, listening, name_of
from puna.daemon.log_format import configure_logging
from puna.daemon.runtime import Runtime
from puna.daemon.service_manager import notify
from puna.http.limits import Limits, raise_descriptor_limit
from puna.http.server import Server
from puna.kvcached.service.endpoint import Endpoint
from puna.registry.remote.signing_key import make_key

log = logging.getLogger(__name__)

_NUM_THREADS = 32
"""For work on files: a few long copies must not keep everybody else waiting, however few cores there are."""
_LAST_WORDS_S = 2.0
"""Requests that then have to fail have this long to tell their clients; who does not read is cut off."""


def serve(settings: Settings, create_app: Callable[[Runtime], ASGIApp]) -> int:
    """Runs the daemon until SIGINT or SIGTERM; returns the process's exit status.

    create_app: the HTTP faces, which are above this room.
    """
    configure_logging(debug=settings.debug, as_json=settings.log_format == "json")
    for warning in settings.warnings:
        log.warning(warning)
    try:
        with listening(settings) as (listener, endpoint):
            uvloop.run(_run(Runtime(settings), create_app, listener, endpoint))
    except CannotListen as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    return 0


class _Shutdown:
    """The first signal asks politely, the second does not."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.asked = asyncio.Event()
        self.forced = asyncio.Event()
        self.hurried = asyncio.Event()

    def on_signal(self) -> None:
        if self.asked.is_set():
            self.hurried.set()
            self.force()
        else:
            log.info("shutting down")
            notify("STOPPING=1")
            self.asked.set()
            self._server.stop()

    async def wait_until_forced(self, timeout_s: float) -> None:
        """No longer than that."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self.forced.wait(), timeout_s)

    def force(self) -> None:
        self.asked.set()
        self.forced.set()
        self._server.abort()


async def _run(
    runtime: Runtime,
    create_app: Callable[[Runtime], ASGIApp],
    listener: socket.socket,
    endpoint: Endpoint | None,
) -> None:
    server = Server(create_app(runtime), Limits(max_connections=raise_descriptor_limit()))
    shutdown = _Shutdown(server)
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(_NUM_THREADS, "puna"))
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, shutdown.on_signal)
    log.info("listening on %s (version %s)", name_of(listener), puna.__version__)
    await asyncio.to_thread(_make_key, runtime.settings.registry_key)
    await runtime.start()
    notify("READY=1")
    async with lending(runtime, endpoint):
        closing = asyncio.create_task(_close_when_asked(runtime, shutdown))
        try:
            await server.serve(listener)
        finally:
            shutdown.force()
            await closing


def _make_key(path: Path) -> None:
    try:
        make_key(path)
    except OSError as error:
        log.warning("registries will not know this machine: cannot make %s: %s", path, error.strerror)


async def _close_when_asked(runtime: Runtime, shutdown: _Shutdown) -> None:
    await shutdown.asked.wait()
    await shutdown.wait_until_forced(runtime.settings.drain_s)
    last_work = [asyncio.create_task(work) for work in (runtime.save_prefixes(), shutdown.hurried.wait())]
    await asyncio.wait(last_work, return_when=asyncio.FIRST_COMPLETED)
    for task in last_work:
        task.cancel()
    await runtime.close()
    await shutdown.wait_until_forced(_LAST_WORDS_S)
    shutdown.force()
