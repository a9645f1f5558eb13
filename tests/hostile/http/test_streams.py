"""A client that does not read its stream holds up nothing but its own request, and not for ever."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator

import pytest
from starlette.types import Receive, Scope, Send

from puna.api.ollama.progress import progress_response
from puna.registry.pull import Progress
from tests.hostile.http.conftest import LIMITS, Raw
from tests.serving import served

pytestmark = pytest.mark.native

REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


class Endless:
    """Events without end, counted."""

    def __init__(self) -> None:
        self.num_events = 0
        self.has_ended = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await progress_response(self._events(), stream=True)(scope, receive, send)

    async def _events(self) -> AsyncGenerator[Progress, None]:
        try:
            while True:
                self.num_events += 1
                yield Progress("x" * 10_000)
        finally:
            self.has_ended = True


def until_none_are_made(app: Endless) -> int:
    """How many there are then."""
    before = 0
    while not before or before != app.num_events:
        before = app.num_events
        time.sleep(0.1)
    return before


def test_events_are_not_made_for_who_does_not_read_and_end_when_it_is_cut_off():
    app = Endless()
    with served(app, LIMITS) as port, Raw(port) as raw:
        raw.send(REQUEST)
        assert until_none_are_made(app) < 10_000  # what the system's buffers hold, and no more
        deadline = time.monotonic() + 10
        while not app.has_ended:
            assert time.monotonic() < deadline
            time.sleep(0.02)


def test_who_reads_again_gets_the_rest():
    app = Endless()
    with served(app) as port, Raw(port) as raw:
        raw.send(REQUEST)
        before, num_bytes = until_none_are_made(app), 0
        while num_bytes < 3 * before * 10_000:
            data = raw.socket.recv(1 << 20)
            assert data
            num_bytes += len(data)
        assert app.num_events > 2 * before
