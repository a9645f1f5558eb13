"""What clients can do to the connection itself: sizes, slowness, numbers, and what is no HTTP."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.hostile.http.conftest import LIMITS, Raw, Teller, talk

pytestmark = pytest.mark.unit

GET = b"GET / HTTP/1.1\r\nHost: a\r\n"
POST = b"POST / HTTP/1.1\r\nHost: a\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"


def status(reply: bytes) -> int:
    return int(reply.split(b" ", 2)[1])


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ([b"GET /" + b"a" * (17 << 10) + b" HTTP/1.1\r\n\r\n"], 414),
        ([b"GET /", *[b"a" * 1000] * 17], 414),
        ([GET, *[b"X-%d: %b\r\n" % (i, b"v" * 1000) for i in range(80)]], 431),
        ([GET + b"X: " + b"v" * (1 << 20)], 431),
        ([GET + b"X: ", *[b"v" * 4000] * 20], 431),
        ([GET + b"v" * (1 << 20)], 431),
        ([GET + b"".join(b"X%d: 1\r\n" % i for i in range(200)) + b"\r\n"], 431),
        ([CHUNKED + b"1;" + b"e" * (1 << 20)], 431),
        ([CHUNKED, *[b"1;" + b"e" * 1000 + b"\r\nx\r\n"] * 200], 431),
        ([CHUNKED + b"0\r\n", *[b"T: " + b"v" * 1000 + b"\r\n"] * 200], 431),
    ],
)
def test_what_is_too_large_is_refused_before_it_is_kept(port, parts, expected):
    assert status(talk(port, *parts)) == expected


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 50,  # TLS
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /\x00 HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nX\x00Y: 1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"GET / HTTP/1.1\r\n Host: a\r\n\r\n",
        b"CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET \xff\xfe HTTP/1.1\r\n\r\n",
        POST + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
        POST + b"Content-Length: -1\r\n\r\n",
        POST + b"Content-Length: 99999999999999999999999\r\n\r\n",
        POST + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        CHUNKED + b"zz\r\n",
        CHUNKED + b"ffffffffffffffffffff\r\n",
        CHUNKED + b"1\r\nabc\r\n",
    ],
)
def test_what_is_no_request_is_400(port, data):
    assert status(talk(port, data)) == 400


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"GET http://elsewhere.example/x?q HTTP/1.1\r\nHost: a\r\n", b"GET /x 0"),
        (b"GET http://elsewhere.example HTTP/1.1\r\nHost: a\r\n", b"GET / 0"),
        (b"GET /%00%ff HTTP/1.1\r\nHost: a\r\n", b"GET /\x00\xef\xbf\xbd 0"),
        (b"GET / HTTP/1.0\r\n", b"GET / 0"),
        (b"\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n", b"GET / 0"),
    ],
)
def test_odd_requests_are_answered(port, data, text):
    reply = talk(port, data + b"Connection: close\r\n\r\n")
    assert status(reply) == 200
    assert reply.partition(b"\r\n\r\n")[2].startswith(text)


def test_request_that_asks_for_another_protocol_is_read_with_its_body(port):
    asked = (
        b"Upgrade: h2c\r\nHTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABk\r\nConnection: Upgrade, HTTP2-Settings\r\n"
    )
    with Raw(port) as raw:
        raw.send(POST + asked + b"Content-Length: 5\r\n\r\nhe", b"llo")
        assert raw.read_until(b"POST / 5 False").startswith(b"HTTP/1.1 200")
        raw.send(CHUNKED[:-2] + asked + b"\r\n2\r\nhi\r\n0\r\n\r\n")
        assert raw.read_until(b"POST / 2 False").startswith(b"HTTP/1.1 200")
    assert status(talk(port, (GET + asked + b"\r\n") * 100)) == 200


def test_head_has_no_body(port):
    reply = talk(port, b"HEAD / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
    head, _, body = reply.partition(b"\r\n\r\n")
    assert (status(head), body) == (200, b"")
    assert b"content-length" in head


def test_body_in_chunks_of_one_byte_is_read(port):
    body = b"1\r\nx\r\n" * 50_000 + b"0\r\nTrailer: 1\r\n\r\n"
    head = CHUNKED.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    assert talk(port, head + body).endswith(b"POST / 50000 False")


def test_continue_is_said_when_the_body_is_wanted(port):
    with Raw(port) as raw:
        raw.send(POST + b"Expect: 100-continue\r\nContent-Length: 2\r\nConnection: close\r\n\r\n")
        assert raw.read_until(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        raw.send(b"hi")
        assert raw.read_all().endswith(b"POST / 2 False")


def test_reply_arrives_though_the_body_is_not_read(port):
    head = b"POST /refuse HTTP/1.1\r\nHost: a\r\nContent-Length: 100000000\r\n\r\n"
    with Raw(port) as raw:
        raw.send(head, *[b"x" * 65536] * 16)
        assert raw.read_all().endswith(b"POST /refuse 0 False")


def test_requests_sent_at_once_are_answered_in_order(port):
    requests = [b"GET /%d HTTP/1.1\r\nHost: a\r\n\r\n" % i for i in range(8)]
    requests.append(b"GET /8 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
    reply = talk(port, b"".join(requests))
    assert [reply.find(b"GET /%d 0" % i) > 0 for i in range(9)] == [True] * 9


def test_thousands_of_requests_sent_at_once_are_not_all_kept(port):
    reply = talk(port, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n" * 5000)
    assert 1 <= reply.count(b"HTTP/1.1") <= LIMITS.num_pipelined + 1


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"GET / HT", 408),
        (POST + b"Content-Length: 10\r\n\r\nabc", 408),
        (CHUNKED + b"5\r\nab", 408),
        (b"", None),
        (b"\r\n", None),
    ],
)
def test_who_stops_in_the_middle_is_told_so_and_cut_off(port, data, expected):
    reply = talk(port, data)
    assert (status(reply) if reply else None) == expected


def test_who_sends_a_byte_at_a_time_is_cut_off(port):
    with Raw(port) as raw:
        raw.send(POST + b"Content-Length: 100000\r\n\r\n")
        for _ in range(20):
            raw.send(b"x")
            time.sleep(0.05)
        assert status(raw.read_all()) == 408


def test_connection_that_idles_is_closed(port):
    with Raw(port) as raw:
        raw.send(GET + b"\r\n")
        assert status(raw.read_all()) == 200


def test_who_does_not_read_is_cut_off_and_the_answer_ends(port, teller: Teller):
    with Raw(port) as raw:
        raw.send(b"GET /forever HTTP/1.1\r\nHost: a\r\n\r\n")
        eventually(lambda: teller.num_running == 1)
        try:
            time.sleep(0.3)
            assert teller.num_running == 1  # it waits, and is not answered into memory
            teller.may_answer.set()
            eventually(lambda: teller.num_running == 0)
        finally:
            teller.may_answer.clear()


def test_half_open_connections_give_way(port):
    half_open = [Raw(port) for _ in range(3 * LIMITS.max_connections)]
    for raw in half_open:
        raw.send(b"GET / HTTP/1.1\r\n")
    try:
        assert status(talk(port, GET + b"Connection: close\r\n\r\n")) == 200
    finally:
        for raw in half_open:
            raw.socket.close()


def test_too_many_requests_are_told_so_and_none_is_reset(port, teller: Teller):
    crowd = [Raw(port) for _ in range(LIMITS.max_requests)]
    try:
        for raw in crowd:
            raw.send(b"GET /wait HTTP/1.1\r\nHost: a\r\n\r\n")
        eventually(lambda: teller.num_running == LIMITS.max_requests)
        more = [Raw(port) for _ in range(2 * LIMITS.max_connections)]
        for raw in more:
            raw.send(b"GET /wait HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        assert all(raw.read_all().endswith(b"GET /wait 0 True") for raw in more)
    finally:
        for raw in [*crowd, *more]:
            raw.socket.close()
    eventually(lambda: teller.num_running == 0)
    assert talk(port, GET + b"Connection: close\r\n\r\n").endswith(b"GET / 0 False")
