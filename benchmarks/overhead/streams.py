"""Requests over plain sockets, which cost the client as little as can be: it shares the processors."""

from __future__ import annotations

import json
import selectors
import socket
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, NamedTuple

from benchmarks.overhead.daemons import Daemon

_READ_BYTES = 1 << 16


@dataclass(frozen=True)
class Protocol:
    """How a chat is asked for and streamed. event: what stands before each token's event."""

    name: str
    path: str
    event: bytes

    def request(self, model: str, text: str, num_tokens: int) -> bytes:
        fields: dict[str, Any] = {
            "model": model,
            "messages": [{"role": "user", "content": text}],
            "stream": True,
        }
        if self.path == "/api/chat":
            fields["options"] = {"temperature": 0, "num_predict": num_tokens}
        else:
            fields |= {"temperature": 0, "max_tokens": num_tokens}
        body = json.dumps(fields).encode()
        head = f"POST {self.path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


NDJSON = Protocol("NDJSON", "/api/chat", b'{"model"')
SSE = Protocol("SSE", "/v1/chat/completions", b"data: {")
_END = b"0\r\n\r\n"


def first_token_s(daemon: Daemon, request: bytes, protocol: Protocol = NDJSON) -> float:
    """From the request to the first event, in seconds; reads the rest, too."""
    with daemon.connect() as connection:
        start = time.perf_counter()
        connection.sendall(request)
        received = connection.recv(_READ_BYTES)
        while protocol.event not in received:
            received += _more(connection)
        took = time.perf_counter() - start
        while not received.endswith(_END):
            received = received[-len(_END) :] + _more(connection)
        return took


class TokenCost(NamedTuple):
    """Of one token, in microseconds: time, and processor time of all of the daemon's processes."""

    wall_us: float
    cpu_us: float


def token_cost(daemon: Daemon, requests: Sequence[bytes], protocol: Protocol) -> TokenCost:
    """Of the requests, all at once, from when each has its first event to when the last one has ended."""
    with ExitStack() as opened:
        selector = opened.enter_context(selectors.DefaultSelector())
        connections = [opened.enter_context(daemon.connect()) for _ in requests]
        for connection, request in zip(connections, requests, strict=True):
            connection.sendall(request)
            selector.register(connection, selectors.EVENT_READ)
        received = _read(selector, dict.fromkeys(connections, b""), protocol.event)
        start, cpu_s = time.perf_counter(), daemon.cpu_s()
        before = sum(data.count(protocol.event) for data in received.values())
        received = _read(selector, received, _END)
        took, cpu_s = time.perf_counter() - start, daemon.cpu_s() - cpu_s
        tokens = sum(data.count(protocol.event) for data in received.values()) - before
        return TokenCost(1e6 * took / tokens, 1e6 * cpu_s / tokens)


def _read(
    selector: selectors.BaseSelector, received: dict[socket.socket, bytes], until: bytes
) -> dict[socket.socket, bytes]:
    """What the connections have sent when each has sent `until`."""
    parts = {connection: [data] for connection, data in received.items()}
    waiting = {connection for connection, data in received.items() if until not in data}
    while waiting:
        for key, _ in selector.select():
            connection = key.fileobj
            assert isinstance(connection, socket.socket)
            data = _more(connection)
            parts[connection].append(data)
            if until in parts[connection][-2][-len(until) :] + data:
                waiting.discard(connection)
    return {connection: b"".join(data) for connection, data in parts.items()}


def _more(connection: socket.socket) -> bytes:
    data = connection.recv(_READ_BYTES)
    if not data:
        raise RuntimeError("a daemon ended a connection")
    return data
