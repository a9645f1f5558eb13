"""`puna serve`: the socket, the HTTP server around the runtime, and a shutdown that leaves nothing behind."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager, suppress

import uvicorn
import uvloop
from starlette.types import ASGIApp

import puna
from puna.daemon.kvcached import MissingPackage, lending, require_packages
from puna.daemon.runtime import Runtime
from puna.host import Host, join_host_port
from puna.kvcached.service.endpoint import Endpoint, open_endpoint
from puna.settings import Settings

log = logging.getLogger(__name__)

_GRACE_S = 2.0
"""Running requests have this long to finish after a signal, and while prefixes are saved; then they fail."""
_LAST_WORDS_S = 2.0
"""They have this long to tell their clients so; connections that nobody reads are cut then."""


def serve(settings: Settings, create_app: Callable[[Runtime], ASGIApp]) -> int:
    """Runs the daemon until SIGINT or SIGTERM; returns the process's exit status.

    create_app: the HTTP faces, which are above this room.
    """
    _configure_logging(debug=settings.debug)
    for warning in settings.warnings:
        log.warning(warning)
    try:
        with _listening(settings) as (listener, endpoint):
            uvloop.run(_run(Runtime(settings), create_app, listener, endpoint))
    except _CannotListen as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    return 0


class _CannotListen(Exception):
    """The text says where, and why not."""


@contextmanager
def _listening(settings: Settings) -> Generator[tuple[socket.socket, Endpoint | None], None, None]:
    """For HTTP, and for the kvcached service if it is wanted. Raises _CannotListen."""
    with ExitStack() as opened:
        try:
            listener = opened.enter_context(bind(settings.host))
        except OSError as error:
            raise _CannotListen(f"listen tcp {settings.host}: bind: {_reason(error)}") from error
        if (path := settings.kvcached_socket) is None:
            yield listener, None
            return
        try:
            require_packages()
            endpoint = opened.enter_context(open_endpoint(path))
        except MissingPackage as error:
            raise _CannotListen(str(error)) from error
        except OSError as error:
            raise _CannotListen(f"listen unix {path}: bind: {_reason(error)}") from error
        yield listener, endpoint


def bind(host: Host) -> socket.socket:
    """A bound socket; an empty address and "::" mean every interface, IPv4 and IPv6. Raises OSError."""
    if host.address in ("", "::") and socket.has_dualstack_ipv6():
        return socket.create_server(("::", host.port), family=socket.AF_INET6, dualstack_ipv6=True)
    found = socket.getaddrinfo(host.address or "0.0.0.0", host.port, type=socket.SOCK_STREAM)
    # As Go does: of a name's addresses, IPv4 is preferred.
    family, _, _, _, address = min(found, key=lambda entry: entry[0] != socket.AF_INET)
    return socket.create_server((str(address[0]), host.port), family=family)


def _reason(error: OSError) -> str:
    # Errors of name resolution have negative numbers; socket.create_server adds words to the others.
    if error.errno is not None and error.errno > 0:
        return os.strerror(error.errno).lower()
    return (error.strerror or str(error)).lower()


def _configure_logging(*, debug: bool) -> None:
    level = logging.DEBUG if debug else logging.INFO
    logging.basicConfig(
        stream=sys.stderr,
        level=level,
        format="%(asctime)s %(levelname)s " + ("%(name)s: " if debug else "") + "%(message)s",
    )
    logging.getLogger("uvicorn.error").setLevel(logging.INFO if debug else logging.WARNING)


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        # uvicorn would raise the signal again when it is done, and the worker would be left behind.
        yield


class _Shutdown:
    """The first signal asks politely, the second does not."""

    def __init__(self, server: uvicorn.Server) -> None:
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
            self.asked.set()
            self._server.should_exit = True

    async def wait_until_forced(self, timeout_s: float) -> None:
        """No longer than that."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self.forced.wait(), timeout_s)

    def force(self) -> None:
        self.asked.set()
        self.forced.set()
        self._server.force_exit = True


async def _run(
    runtime: Runtime,
    create_app: Callable[[Runtime], ASGIApp],
    listener: socket.socket,
    endpoint: Endpoint | None,
) -> None:
    config = uvicorn.Config(
        create_app(runtime),
        log_config=None,
        lifespan="off",
        server_header=False,
    )
    server = _Server(config)
    shutdown = _Shutdown(server)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, shutdown.on_signal)
    address, port = listener.getsockname()[:2]
    log.info("listening on %s (version %s)", join_host_port(address, port), puna.__version__)
    await runtime.start()
    async with lending(runtime, endpoint):
        closing = asyncio.create_task(_close_when_asked(runtime, shutdown))
        try:
            await server.serve(sockets=[listener])
        finally:
            shutdown.force()
            await closing


async def _close_when_asked(runtime: Runtime, shutdown: _Shutdown) -> None:
    await shutdown.asked.wait()
    await shutdown.wait_until_forced(_GRACE_S)
    last_work = [asyncio.create_task(work) for work in (runtime.save_prefixes(), shutdown.hurried.wait())]
    await asyncio.wait(last_work, return_when=asyncio.FIRST_COMPLETED)
    for task in last_work:
        task.cancel()
    await runtime.close()
    await shutdown.wait_until_forced(_LAST_WORDS_S)
    shutdown.force()
