"""An application that tells what it got, on a server with short deadlines, and raw connections to it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send

from puna.http.limits import Limits
from tests.serving import served

LIMITS = Limits(
    head_s=0.5,
    body_s=0.5,
    idle_s=0.5,
    write_s=0.5,
    linger_s=0.5,
    newcomer_s=0.1,
    max_connections=40,
    num_spare=10,
)


@dataclass
class Teller:
    """Answers with method, path, length of the body, and whether there are too many requests.

    /forever never stops answering, /wait answers when it is told to, /refuse without reading the body.
    """

    num_running: int = 0
    may_answer: threading.Event = field(default_factory=threading.Event)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.num_running += 1
        try:
            await self._answer(scope, receive, send)
        finally:
            self.num_running -= 1

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        path, more, num_bytes = scope["path"], scope["path"] != "/refuse", 0
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            num_bytes += len(message["body"])
            more = message["more_body"]
        if path == "/forever":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            while num_bytes >= 0:
                await send({"type": "http.response.body", "body": b"x" * 65536, "more_body": True})
                if self.may_answer.is_set():
                    return
        is_crowded = scope["extensions"]["puna"]["is_crowded"]
        if path == "/wait" and not is_crowded:
            assert (await receive())["type"] == "http.disconnect"
            return
        text = f"{scope['method']} {path} {num_bytes} {is_crowded}".encode()
        headers = [(b"content-length", b"%d" % len(text))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": text})


@pytest.fixture(scope="module")
def teller() -> Teller:
    return Teller()


@pytest.fixture(scope="module")
def port(teller: Teller) -> Iterator[int]:
    with served(teller, LIMITS) as port:
        yield port


class Raw:
    """A connection on which anything can be sent."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=10)

    def __enter__(self) -> Raw:
        return self

    def __exit__(self, *_: Any) -> None:
        self.socket.close()

    def send(self, *parts: bytes) -> None:
        """As far as the server takes it."""
        for part in parts:
            try:
                self.socket.sendall(part)
            except (BrokenPipeError, ConnectionResetError):
                return

    def read_all(self) -> bytes:
        """Until the server closes."""
        data = b""
        try:
            while piece := self.socket.recv(1 << 16):
                data += piece
        except ConnectionResetError:
            pass
        return data

    def read_until(self, end: bytes) -> bytes:
        data = b""
        while not data.endswith(end) and (piece := self.socket.recv(1 << 16)):
            data += piece
        return data


def talk(port: int, *parts: bytes) -> bytes:
    """What the server says to these parts until it closes."""
    with Raw(port) as raw:
        raw.send(*parts)
        return raw.read_all()
