"""One client's connection: parses its requests, has them answered in order, and keeps to the limits."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from typing import NamedTuple, cast

import httptools
from starlette.types import ASGIApp

from puna.http.connections import Connections, Phase
from puna.http.exchange import Exchange
from puna.http.head import Head
from puna.http.limits import Limits
from puna.http.peer import Peer, peer_of
from puna.http.refusal import Refusal

_FRAMING_PER_BYTE = 8  # chunks of one byte have five beside it


class Service(NamedTuple):
    """What all connections of a server share."""

    app: ASGIApp
    limits: Limits
    connections: Connections
    tasks: set[asyncio.Task[None]]


class Connection(asyncio.Protocol):
    """A request's `scope["extensions"]["puna"]` has its `peer` (see puna.http.peer) and `is_crowded`:
    whether so many are being answered that this one should be refused.
    """

    def __init__(self, service: Service) -> None:
        self._app, self._limits, self._connections, self._tasks = service
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._peer: Peer
        self._parser = self._new_parser()
        self._refusal: Refusal | None = None  # raised within the parser, which hides it
        self._head: Head | None = None
        self._upgrading: Head | None = None
        """Of a request that asks for another protocol."""
        self._reading: Exchange | None = None
        """Whose body is coming."""
        self._running: Exchange | None = None
        self._queue: deque[Exchange] = deque()
        self._is_deaf = False
        """What comes is thrown away."""
        self._is_finishing = False
        self._is_reading_paused = False
        self.is_full = False
        self._writable = asyncio.Event()
        self._num_unread = math.inf
        """Bytes that were left to be taken when the client last took any."""
        self._read_deadline_s = self._write_deadline_s = math.inf
        self._progress_bytes = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is no subclass
        self._peer = peer_of(transport)
        self._connections.enter(self, Phase.WAITING)
        self._expect_within(self._limits.head_s)

    def connection_lost(self, _: Exception | None) -> None:
        self._connections.leave(self)
        for exchange in (self._running, self._reading, *self._queue):
            if exchange is not None:
                exchange.disconnect()
        self._queue.clear()
        self.resume_writing()

    def data_received(self, data: bytes) -> None:
        if self._is_deaf:
            return
        head, reading = self._head, self._reading
        num_body_bytes = reading.num_body_bytes if reading else 0
        try:
            self._parser.feed_data(data)
            if self._head is not None and (head is self._head or (reading is None and self._running is None)):
                self._head.num_fed += len(data)
                self._check_head(self._head)
            if reading is not None and reading is self._reading:
                reading.num_framing_bytes += len(data) - (reading.num_body_bytes - num_body_bytes)
                self._check_framing(reading)
        except httptools.HttpParserUpgrade as upgrade:
            self._stay(data[upgrade.args[0] :])
        except httptools.HttpParserError:
            self._refuse(self._refusal or Refusal(400, "malformed request"))
        except Refusal as refusal:
            self._refuse(refusal)

    def pause_writing(self) -> None:
        self.is_full = True
        self._writable.clear()
        self._watch_writing()

    def resume_writing(self) -> None:
        self.is_full = False
        self._writable.set()
        self._write_deadline_s = math.inf

    # The parser calls these.

    def on_message_begin(self) -> None:
        self._head = Head()
        if self._running is None:
            self._expect_within(self._limits.head_s)

    def on_url(self, part: bytes) -> None:
        assert self._head is not None
        self._head.add_target(part)
        if len(self._head.target) > self._limits.target_bytes:
            self._fail(414, "the request's target is too long")

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._head is None:  # a trailer
            return
        self._head.add_header(name, value)
        self._check_head(self._head)

    def on_headers_complete(self) -> None:
        assert self._head is not None
        head, self._head = self._head, None
        if self._parser.should_upgrade():
            self._upgrading = head
            return
        try:
            scope = head.scope(self._parser, self._peer)
        except (httptools.HttpParserError, ValueError):
            self._fail(400, "malformed request target")
        headers = dict(head.headers)
        if sum(name == b"host" for name, _ in head.headers) > 1:
            self._fail(400, "more than one Host header")
        exchange = Exchange(
            self,
            scope,
            keep_alive=scope["http_version"] == "1.1" and self._parser.should_keep_alive(),
            expects_continue=headers.get(b"expect", b"").lower() == b"100-continue",
        )
        self._reading = exchange
        self._progress_bytes = 0
        self._expect_within(self._limits.body_s)
        if self._running is None:
            self._start(exchange)
        elif len(self._queue) >= self._limits.num_pipelined:
            self._fail(503, "too many requests at once on one connection")
        else:
            self._queue.append(exchange)
            self.pause_reading()

    def on_body(self, data: bytes) -> None:
        reading = self._reading
        assert reading is not None
        reading.feed(data)
        if reading.num_body_bytes - self._progress_bytes >= self._limits.body_progress_bytes:
            self._progress_bytes = reading.num_body_bytes
            self._expect_within(self._limits.body_s)

    def on_message_complete(self) -> None:
        if self._upgrading is not None:
            return
        reading, self._reading = self._reading, None
        self._read_deadline_s = math.inf
        assert reading is not None
        reading.feed_end()
        if reading is self._running:
            self._connections.enter(self, Phase.WORKING)

    # An exchange calls these.

    def write(self, data: bytes) -> None:
        self._transport.write(data)
        if self._transport.is_closing():
            # What is written goes nowhere: until connection_lost() nobody goes on.
            self.is_full = True
            self._writable.clear()

    async def drained(self) -> None:
        await self._writable.wait()

    def pause_reading(self) -> None:
        if not self._is_reading_paused and not self._transport.is_closing():
            self._is_reading_paused = True
            self._read_deadline_s = math.inf  # the client is not to blame
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self._is_reading_paused and not self._queue and not self._transport.is_closing():
            self._is_reading_paused = False
            if self._reading is not None:
                self._expect_within(self._limits.body_s)
            self._transport.resume_reading()

    def finished(self, exchange: Exchange) -> None:
        self._running = None
        if self._transport.is_closing():
            return
        if self._is_finishing or self._is_deaf or not exchange.keep_alive:
            self._hang_up()
        elif self._queue:
            self._start(self._queue.popleft())
            self.resume_reading()
        else:
            self._connections.enter(self, Phase.WAITING)
            self._expect_within(self._limits.head_s if self._head is not None else self._limits.idle_s)
            self.resume_reading()

    # The table of connections calls these.

    def check(self, now_s: float) -> None:
        if now_s > self._read_deadline_s:
            self._take_too_long()
        if now_s > self._write_deadline_s:
            if self._transport.get_write_buffer_size() < self._num_unread:
                self._watch_writing()
            else:
                self.abort()

    def finish(self) -> None:
        self._is_finishing = True
        if self._running is None:
            self._watch_writing()
            self._transport.close()
        else:
            self._running.keep_alive = False

    def abort(self) -> None:
        self._transport.abort()

    def _new_parser(self) -> httptools.HttpRequestParser:
        parser = httptools.HttpRequestParser(self)
        # What follows a request that asked to close is not read, rather than wrong.
        parser.set_dangerous_leniencies(lenient_data_after_close=True)
        return parser

    def _stay(self, rest: bytes) -> None:
        """Reads a request that asks for another protocol as if it did not (Java's clients do so).

        rest: what came behind its head.
        """
        head, method = self._upgrading, self._parser.get_method()
        self._upgrading = None
        self._parser = self._new_parser()
        if head is None or method == b"CONNECT":
            self._refuse(Refusal(400, "malformed request"))
            return
        self.data_received(head.without_upgrade(method) + rest)

    def _start(self, exchange: Exchange) -> None:
        self._running = exchange
        self._connections.enter(self, Phase.WORKING if exchange.is_read else Phase.RECEIVING)
        extensions = {"peer": self._peer, "is_crowded": self._connections.is_crowded}
        exchange.scope["extensions"] = {"puna": extensions}
        task = self._loop.create_task(exchange.run(self._app))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _check_head(self, head: Head) -> None:
        if head.is_too_large(self._limits):
            self._fail(431, "the request's headers are too large")

    def _check_framing(self, reading: Exchange) -> None:
        if reading.num_framing_bytes > self._limits.head_bytes + _FRAMING_PER_BYTE * reading.num_body_bytes:
            self._fail(431, "the request's chunk extensions or trailers are too large")

    def _fail(self, status: int, text: str) -> None:
        self._refusal = Refusal(status, text)
        raise self._refusal

    def _refuse(self, refusal: Refusal) -> None:
        """Reads no more requests; says why, unless an earlier one is still being answered."""
        self._is_deaf = True
        self._queue.clear()
        running = self._running
        if running is not None and running.is_read:
            running.keep_alive = False
            return
        if running is not None:
            running.disconnect()
            self._running = None
        if running is not None and running.has_begun:
            self.abort()
            return
        self.write(refusal.reply())
        self._hang_up()

    def _hang_up(self) -> None:
        """Closes, but reads on for a moment: what is left unread would take the reply from the client."""
        self._connections.enter(self, Phase.WAITING)
        self._queue.clear()
        is_all_read = self._reading is None and not self._is_deaf
        self._is_deaf = True
        self.resume_reading()
        self._watch_writing()
        if is_all_read or not self._transport.can_write_eof():
            self._transport.close()
        else:
            self._transport.write_eof()
            self._expect_within(self._limits.linger_s)

    def _take_too_long(self) -> None:
        self._read_deadline_s = math.inf
        if self._is_deaf or (self._head is None and self._reading is None):
            self._watch_writing()
            self._transport.close()
        else:
            self._refuse(Refusal(408, "the request takes too long"))

    def _expect_within(self, seconds: float) -> None:
        self._read_deadline_s = self._loop.time() + seconds

    def _watch_writing(self) -> None:
        self._num_unread = self._transport.get_write_buffer_size()
        self._write_deadline_s = self._loop.time() + self._limits.write_s
