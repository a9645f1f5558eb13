"""Streams over plain sockets, which cost the client as little as can be: it shares the processors."""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import NamedTuple

from benchmarks.overhead.daemons import Daemon
from benchmarks.overhead.protocols import Protocol

_READ_BYTES = 1 << 16
_END = b"0\r\n\r\n"


def first_token_s(daemon: Daemon, request: bytes, protocol: Protocol) -> float:
    """From the request to the first event, in seconds; reads the rest, too."""
    with daemon.connect() as connection:
        start = time.perf_counter()
        connection.sendall(request)
        received = connection.recv(_READ_BYTES)
        while protocol.event not in received:
            received += _more(connection, received)
        took = time.perf_counter() - start
        while not received.endswith(_END):
            received = received[-len(_END) :] + _more(connection, received)
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
            data = _more(connection, parts[connection][-1])
            parts[connection].append(data)
            if until in parts[connection][-2][-len(until) :] + data:
                waiting.discard(connection)
    return {connection: b"".join(data) for connection, data in parts.items()}


def _more(connection: socket.socket, before: bytes) -> bytes:
    """before: what was received, for the error."""
    data = connection.recv(_READ_BYTES)
    if not data:
        raise RuntimeError(f"a daemon ended a connection behind {before[-300:]!r}")
    return data
