"""Clients that do what grpcio's never do: windows that stay shut, connections that break in the middle."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, Event, ResponseReceived, StreamEnded, TrailersReceived

from tests.kvcached.service.conftest import PAGE, eventually
from tests.kvcached.service.stubs import modules

pytestmark = pytest.mark.native

MESSAGES, _ = modules()
_WITH_HEADERS = (ResponseReceived, TrailersReceived)  # errors have no other headers


class RawClient:
    def __init__(self, path) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(60)
        self.socket.connect(str(path))
        self.h2 = H2Connection(H2Configuration(client_side=True))
        self.h2.initiate_connection()

    def send(self) -> None:
        self.socket.sendall(self.h2.data_to_send())

    def begin(self, method: str) -> int:
        stream = self.h2.get_next_available_stream_id()
        headers = {":method": "POST", ":scheme": "http", ":path": f"/KVCached/{method}", ":authority": "x"}
        headers |= {"content-type": "application/grpc", "te": "trailers"}
        self.h2.send_headers(stream, list(headers.items()))
        return stream

    def call(self, method: str, message) -> int:
        stream, body = self.begin(method), message.SerializeToString()
        self.h2.send_data(stream, b"\0" + len(body).to_bytes(4, "big") + body, end_stream=True)
        self.send()
        return stream

    def events(self) -> Iterator[Event]:
        while data := self.socket.recv(1 << 16):
            yield from self.h2.receive_data(data)
            self.send()

    def status(self) -> bytes:
        """How the next call ends."""
        headers = (dict(event.headers) for event in self.events() if isinstance(event, _WITH_HEADERS))
        return next(each[b"grpc-status"] for each in headers if b"grpc-status" in each)


@pytest.fixture
def raw(served) -> Iterator[RawClient]:
    client = RawClient(served.path)
    yield client
    client.socket.close()


def test_reply_comes_as_the_window_opens(served, raw):
    for _ in range(300):
        served.client().allocate(PAGE, "m" * 256)
    raw.call("GetStats", MESSAGES.StatsRequest(list_allocations=True))
    body = b""
    for event in raw.events():
        if isinstance(event, DataReceived):
            body += event.data
            if len(body) == 65535:  # all that a client takes at first
                raw.h2.increment_flow_control_window(1)
                raw.h2.increment_flow_control_window(1, event.stream_id)
                raw.send()
            if len(body) == 65536:
                raw.h2.increment_flow_control_window(1 << 20)
                raw.h2.increment_flow_control_window(1 << 20, event.stream_id)
                raw.send()
        if isinstance(event, StreamEnded):
            break
    assert len(body) > 65536
    assert len(MESSAGES.StatsResponse.FromString(body[5:]).allocations) == 300


@pytest.mark.parametrize("end", ["connection", "goodbye", "stream"])
def test_call_that_breaks_off_leaves_nothing(served, raw, end):
    served.budget.may_answer.clear()
    stream = raw.call("Allocate", MESSAGES.AllocRequest(size=PAGE))
    eventually(lambda: served.service.allocations._work)
    if end == "connection":
        raw.socket.close()
        eventually(lambda: not served.service.connections)
    elif end == "goodbye":
        raw.h2.close_connection()
        raw.send()
        eventually(lambda: not served.service.connections)
    else:
        raw.h2.reset_stream(stream)
        raw.send()
        raw.call("GetStats", MESSAGES.StatsRequest())
    served.budget.may_answer.set()
    eventually(lambda: not served.service.allocations._work)
    assert served.budget.leased == 0
    assert served.objects() == []


def test_request_that_is_reset_before_its_end(raw):
    stream = raw.begin("Allocate")
    raw.h2.send_data(stream, bytes(3))
    raw.h2.reset_stream(stream)
    raw.send()
    raw.call("GetStats", MESSAGES.StatsRequest())
    assert raw.status() == b"0"


@pytest.mark.parametrize("body", [b"", b"\0\0\0\0\x05abc", b"\0\0\0\0\0\0"])
def test_request_that_is_cut_off_or_too_long(raw, body):
    stream = raw.begin("Allocate")
    raw.h2.send_data(stream, body, end_stream=True)
    raw.send()
    assert raw.status() == b"13"


def test_client_that_does_not_read_is_not_listened_to(served, raw):
    raw.send()
    raw.socket.settimeout(1)
    pings = (b"\0\0\x08\x06\0\0\0\0\0" + bytes(8)) * 1_000_000
    with pytest.raises(TimeoutError):
        raw.socket.sendall(pings)
    served.client().allocate(PAGE)
