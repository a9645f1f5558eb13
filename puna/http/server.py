"""Serves an ASGI application on one listening socket."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from contextlib import suppress

from starlette.types import ASGIApp

from puna.http.connection import Connection, Service
from puna.http.connections import Connections
from puna.http.limits import Limits

log = logging.getLogger(__name__)

_BACKLOG = 2048
_PAUSE_S = 0.1
"""When there are no descriptors for a connection."""


class Server:
    """stop() lets replies under way be finished, abort() does not; serve() returns when all are closed."""

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        self._connections = Connections(limits)
        self._tasks: set[asyncio.Task[None]] = set()
        self._service = Service(app, limits, self._connections, self._tasks)
        self._is_stopping = asyncio.Event()
        self._is_aborting = False

    async def serve(self, listener: socket.socket) -> None:
        """Takes connections of a bound socket, which it closes, until stop() or abort()."""
        listener.setblocking(False)
        listener.listen(_BACKLOG)
        accepting = asyncio.create_task(self._accept(listener))
        try:
            await self._is_stopping.wait()
        finally:
            accepting.cancel()
            await asyncio.wait([accepting])
            listener.close()
        for connection in self._connections.all():
            connection.finish()
        if self._is_aborting:
            self.abort()
        await self._connections.emptied()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def stop(self) -> None:
        """Takes no more connections and requests."""
        self._is_stopping.set()

    def abort(self) -> None:
        """Closes all connections as they are."""
        self._is_stopping.set()
        self._is_aborting = True
        for connection in self._connections.all():
            connection.abort()
        for task in self._tasks:
            task.cancel()

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(listener)
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    log.warning("a connection cannot be taken: %s", error.strerror)
                    await asyncio.sleep(_PAUSE_S)
                continue
            await self._connections.make_room()
            with suppress(OSError):  # it may be gone already
                await loop.connect_accepted_socket(lambda: Connection(self._service), connection)
