"""Clients that do what grpcio's never do: windows that stay shut, connections that break in the middle."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import DataReceived, Event, ResponseReceived, StreamEnded, StreamReset, TrailersReceived
from h2.settings import SettingCodes
from hyperframe.frame import RstStreamFrame

from puna.kvcached.service import shared_memory
from tests.kvcached.service.conftest import MIB, PAGE, eventually
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

    def begin(self, method: str, timeout: str | None = None) -> int:
        stream = self.h2.get_next_available_stream_id()
        headers = {":method": "POST", ":scheme": "http", ":path": f"/KVCached/{method}", ":authority": "x"}
        headers |= {"content-type": "application/grpc", "te": "trailers"}
        headers |= {"grpc-timeout": timeout} if timeout is not None else {}
        self.h2.send_headers(stream, list(headers.items()))
        return stream

    def call(self, method: str, message, timeout: str | None = None) -> int:
        stream, body = self.begin(method, timeout), message.SerializeToString()
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

    def allocate(self) -> int:
        """Its stream, once the reply is read."""
        stream = self.call("Allocate", MESSAGES.AllocRequest(size=PAGE))
        assert self.status() == b"0"
        return stream

    def reset_after_reply(self, stream: int, error: ErrorCodes) -> None:
        """As if the reply had not come yet."""
        self.socket.sendall(RstStreamFrame(stream, error).serialize())

    def catch_up(self) -> None:
        """Until the service has read everything."""
        self.call("Free", MESSAGES.FreeRequest(handle=0))
        assert self.status() == b"5"

    def shut_windows(self) -> None:
        """Replies have nowhere to go."""
        self.h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 0})


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


def nothing_is_left(served) -> bool:
    return not (served.service.allocations._work or served.budget.leased or served.objects())


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
        raw.catch_up()
    served.budget.may_answer.set()
    eventually(lambda: nothing_is_left(served))


@pytest.mark.parametrize("end", ["connection", "stream", "deadline"])
def test_reply_that_finds_no_window_leaves_nothing(served, raw, end):
    raw.shut_windows()
    stream = raw.call("Allocate", MESSAGES.AllocRequest(size=PAGE), "1H")
    next(event for event in raw.events() if isinstance(event, ResponseReceived))
    assert served.budget.leased == PAGE
    if end == "deadline":
        (connection,) = served.service.connections
        served.loop.call_soon_threadsafe(connection._expire, stream)
        reset = next(event for event in raw.events() if isinstance(event, StreamReset))
        assert reset.error_code is ErrorCodes.CANCEL
    elif end == "connection":
        raw.socket.close()
    else:
        raw.h2.increment_flow_control_window(1)
        raw.h2.increment_flow_control_window(1, stream)
        raw.h2.reset_stream(stream)
        raw.catch_up()
    eventually(lambda: nothing_is_left(served))


def test_reset_that_crosses_a_reply_undoes_the_call(served, raw):
    first, second, third = raw.allocate(), raw.allocate(), raw.allocate()
    raw.reset_after_reply(second, ErrorCodes.CANCEL)
    eventually(lambda: served.budget.leased == 2 * PAGE)
    raw.reset_after_reply(second, ErrorCodes.CANCEL)
    raw.reset_after_reply(first, ErrorCodes.NO_ERROR)  # "I am done with it"
    raw.reset_after_reply(first, ErrorCodes.CANCEL)
    raw.reset_after_reply(third, ErrorCodes.INTERNAL_ERROR)
    raw.catch_up()
    eventually(lambda: served.budget.leased == PAGE)
    assert len(served.objects()) == 1


def test_replies_are_forgotten_that_must_have_been_read(served, raw):
    streams = [raw.allocate() for _ in range(101)]  # a client has at most 100 calls under way
    raw.reset_after_reply(streams[0], ErrorCodes.CANCEL)
    raw.reset_after_reply(streams[1], ErrorCodes.CANCEL)
    raw.catch_up()
    eventually(lambda: served.budget.leased == 100 * PAGE)


def test_deadline_ends_a_call_and_leaves_nothing(served, raw):
    served.budget.may_answer.clear()
    raw.call("Allocate", MESSAGES.AllocRequest(size=PAGE), "50m")
    assert raw.status() == b"4"
    served.budget.may_answer.set()
    eventually(lambda: nothing_is_left(served))


def test_deadline_ends_a_request_that_is_not_complete(raw):
    stream = raw.begin("Allocate", "50000u")
    raw.send()
    assert raw.status() == b"4"
    raw.h2.send_data(stream, bytes(5), end_stream=True)
    raw.catch_up()


@pytest.mark.parametrize("timeout", ["99999999H", "600M", "3600S"])
def test_deadline_that_is_far(raw, timeout):
    raw.call("GetStats", MESSAGES.StatsRequest(), timeout)
    assert raw.status() == b"0"


@pytest.mark.parametrize("timeout", ["", "m", "1", "1s", "-1m", "1.5S", "123456789m", "1 m", "1mm"])
def test_deadline_that_makes_no_sense(raw, timeout):
    raw.call("GetStats", MESSAGES.StatsRequest(), timeout)
    assert raw.status() == b"13"
    raw.catch_up()


def test_large_allocation_that_is_given_up_stops(served, raw, monkeypatch):
    real, steps = os.posix_fallocate, []
    monkeypatch.setattr(shared_memory, "_STEP_BYTES", PAGE)

    def fallocate(descriptor: int, start: int, size: int) -> None:
        steps.append(start)
        if len(steps) == 4:
            raw.h2.reset_stream(stream)
            raw.catch_up()
        real(descriptor, start, size)

    served.budget.may_answer.clear()
    monkeypatch.setattr(os, "posix_fallocate", fallocate)
    stream = raw.call("Allocate", MESSAGES.AllocRequest(size=MIB))
    served.budget.may_answer.set()
    eventually(lambda: steps and nothing_is_left(served))
    assert len(steps) == 4


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
