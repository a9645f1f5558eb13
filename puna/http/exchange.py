"""One request and its reply, as an ASGI application sees them."""

from __future__ import annotations

import asyncio
import http
import logging
import time
from email.utils import formatdate
from typing import Protocol

from starlette.types import ASGIApp, Message, Scope

log = logging.getLogger(__name__)

_READ_AHEAD_BYTES = 64 << 10
_STATUS_LINES = {
    int(status): f"HTTP/1.1 {int(status)} {status.phrase}\r\n".encode() for status in http.HTTPStatus
}


class Wire(Protocol):
    """The connection, as far as a reply needs it."""

    def write(self, data: bytes) -> None:
        """Never waits."""

    is_full: bool
    """More is written than the client takes."""

    async def drained(self) -> None:
        """Waits while the wire is full."""

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def finished(self, exchange: Exchange) -> None:
        """The reply is written."""

    def abort(self) -> None:
        """Closes at once: a reply that has begun cannot be finished."""


class Exchange:
    """Takes a request's body from the connection, and writes the reply to it."""

    def __init__(self, wire: Wire, scope: Scope, *, keep_alive: bool, expects_continue: bool) -> None:
        self.scope = scope
        self.keep_alive = keep_alive
        """Whether another request may follow the reply."""
        self.num_body_bytes = 0
        self.num_framing_bytes = 0
        """Of a body in chunks: what came beside its content."""
        self.has_begun = False
        """A part of the reply is written."""
        self.is_read = False
        """The body has come as a whole."""
        self.is_complete = False
        """The reply is written."""
        self._wire = wire
        self._expects_continue = expects_continue
        self._body = bytearray()
        self._is_given = False  # the body's end, to the application
        self._is_disconnected = False
        self._changed = asyncio.Event()
        self._head: Message | None = None
        self._is_chunked = False
        self._num_left: int | None = None  # bytes of a body whose length was announced

    async def run(self, app: ASGIApp) -> None:
        """Has the application answer; what it fails to say is said here."""
        try:
            await app(self.scope, self.receive, self.send)
        except Exception:
            log.exception("unexpected error in a request")
        if self.is_complete or self._is_disconnected:
            return
        if self.has_begun:
            self._wire.abort()
            return
        self.keep_alive = False
        await self.send(
            {"type": "http.response.start", "status": 500, "headers": [(b"content-length", b"0")]}
        )
        await self.send({"type": "http.response.body"})

    def feed(self, data: bytes) -> None:
        """A part of the body."""
        self.num_body_bytes += len(data)
        if self.is_complete:
            return
        self._body += data
        if len(self._body) > _READ_AHEAD_BYTES:
            self._wire.pause_reading()
        self._changed.set()

    def feed_end(self) -> None:
        """The body is whole."""
        self.is_read = True
        self._changed.set()

    def disconnect(self) -> None:
        """The client is gone, or its request turned out to be none."""
        self._is_disconnected = True
        self._changed.set()

    async def receive(self) -> Message:
        """ASGI: the body in parts, then the client's end."""
        if self._expects_continue and not self.has_begun and not self.is_read:
            self._wire.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        self._expects_continue = False
        while True:
            if self._is_disconnected or self.is_complete:
                return {"type": "http.disconnect"}
            if self._body or (self.is_read and not self._is_given):
                body, self._body = self._body, bytearray()
                self._is_given = self.is_read
                self._wire.resume_reading()
                return {"type": "http.request", "body": bytes(body), "more_body": not self.is_read}
            self._changed.clear()
            await self._changed.wait()

    async def send(self, message: Message) -> None:
        """ASGI: the reply in parts. Waits while the client does not read."""
        if self._is_disconnected or self.is_complete:
            await asyncio.sleep(0)  # who only ever sends must notice a cancellation, too
            return
        if message["type"] == "http.response.start":
            self._head = message
            return
        body, is_last = message.get("body", b""), not message.get("more_body", False)
        data = b"" if self.has_begun else self._begin()
        data += self._framed(body, is_last)
        if data:
            self._wire.write(data)
        if is_last:
            self.is_complete = True
            self._changed.set()
            self._wire.finished(self)
        elif self._wire.is_full:
            await self._wire.drained()

    def _begin(self) -> bytes:
        """Status line and headers."""
        assert self._head is not None, "a body before its status"
        self.has_begun = True
        status, headers = self._head["status"], list(self._head.get("headers", ()))
        self._num_left = next((int(value) for name, value in headers if name == b"content-length"), None)
        if self._num_left is None and status not in (204, 304):
            self._is_chunked = self.scope["http_version"] == "1.1"
            if self._is_chunked:
                headers.append((b"transfer-encoding", b"chunked"))
            else:  # the connection's end is the body's
                self.keep_alive = False
        if not self.is_read:
            self.keep_alive = False
        if not self.keep_alive:
            headers.append((b"connection", b"close"))
        return encode_head(status, headers)

    def _framed(self, body: bytes, is_last: bool) -> bytes:
        if self.scope["method"] == "HEAD":
            return b""
        if self._is_chunked:
            chunk = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
            return chunk + b"0\r\n\r\n" if is_last else chunk
        if self._num_left is not None:
            self._num_left -= len(body)
            if self._num_left < 0 or (is_last and self._num_left):
                raise RuntimeError("a reply is not as long as announced")
        return body


def encode_head(status: int, headers: list[tuple[bytes, bytes]]) -> bytes:
    """Status line and headers with the date. ValueError for a header that would break its line."""
    parts = [_STATUS_LINES.get(status) or b"HTTP/1.1 %d \r\n" % status, _date_line()]
    for name, value in headers:
        parts += (name, b": ", value, b"\r\n")
    head = b"".join(parts)
    if head.count(b"\n") != len(headers) + 2:
        raise ValueError("a header of the reply has a line break")
    return head + b"\r\n"


_date: tuple[int, bytes] = (0, b"")


def _date_line() -> bytes:
    global _date
    now_s = int(time.time())
    if _date[0] != now_s:
        _date = now_s, f"date: {formatdate(now_s, usegmt=True)}\r\n".encode()
    return _date[1]
