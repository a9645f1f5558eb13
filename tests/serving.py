"""An application on a port of its own, in a thread."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvloop
from starlette.types import ASGIApp

from puna.http.limits import Limits
from puna.http.server import Server


@contextmanager
def served(
    app: ASGIApp, limits: Limits | None = None, listener: socket.socket | None = None
) -> Iterator[int]:
    """The port, if it is one; at the end, what is still being answered is cut off."""
    listener = listener or socket.create_server(("127.0.0.1", 0))
    port = 0 if listener.family == socket.AF_UNIX else listener.getsockname()[1]
    server = Server(app, limits or Limits())
    loop = uvloop.new_event_loop()
    thread = threading.Thread(target=lambda: loop.run_until_complete(server.serve(listener)))
    thread.start()
    try:
        yield port
    finally:
        loop.call_soon_threadsafe(server.abort)
        thread.join()
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()
