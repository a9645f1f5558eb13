"""What clients can put into bodies, and what their memory is bounded by."""

from __future__ import annotations

import gzip
import json
import resource
import zlib

import pytest
import zstandard

from puna._native import json_structure
from puna.api.app import create_app
from puna.api.bodies.body_budget import BodyBudget
from puna.api.errors import ApiError
from puna.api.options import parse_options
from puna.config.host import Host
from puna.config.settings import Settings
from tests.api.conftest import Client
from tests.api.fake_runtime import FakeRuntime
from tests.hostile.http.conftest import talk
from tests.serving import served

pytestmark = pytest.mark.native

LIMIT = 4 << 20


@pytest.fixture
def client(tmp_path) -> Client:
    settings = Settings(models=tmp_path / "store", host=Host(), max_body_bytes=LIMIT)
    return Client(create_app(FakeRuntime(settings)))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"", (1, 0, 0)),
        (b"[[],[]]", (5, 2, 0)),
        (b'{"a": {"b": [1, 2, 3]}, "c": "[{,:"}', (10, 3, 1)),
        (rb'["\\", "\"[", "]"]', (4, 1, 0)),
        (b'["', (2, 1, 0)),
        (b'["\\', (2, 1, 0)),
        (b"]]]][", (2, 1, 0)),
        (b'["12345", -123, 12.3e4567', (4, 1, 4)),
    ],
)
def test_structure_of_json(text, expected):
    assert json_structure(text) == json_structure(bytearray(text)) == expected


@pytest.mark.parametrize("path", ["/api/chat", "/v1/chat/completions"])
@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"model": "%b"}' % (b"x" * LIMIT), 413),
        (b'{"tools": [' + b"[]," * 600_000 + b"[]]}", 413),
        (b'{"options": ' + b'{"a":' * 200 + b"1" + b"}" * 200 + b"}", 400),
        (b'{"messages": [' + b'{"role":"user"},' * 20_000 + b'{"role":"user"}]}', 400),
        (b'{"tools": [' + b"1," * 2000 + b"1]}", 400),
        (b'{"model": "m", "priority": ' + b"9" * 4000 + b"}", 400),
    ],
)
def test_what_would_take_too_much_is_refused_in_the_face_s_shape(client, path, body, expected):
    response = client.post(path, body)
    assert response.status_code == expected
    error = response.json()["error"]
    assert len(error["message"] if path.startswith("/v1") else error) < 300


def test_body_that_is_announced_too_long_is_not_read(tmp_path):
    settings = Settings(models=tmp_path / "store", max_body_bytes=LIMIT)
    with served(create_app(FakeRuntime(settings))) as port:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        head = b"POST /api/chat HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1073741824\r\n\r\n"
        assert talk(port, head, *[b"x" * (1 << 20)] * 64).startswith(b"HTTP/1.1 413 ")
        chunked = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        chunk = b"100000\r\n" + b"x" * (1 << 20) + b"\r\n"
        assert talk(port, chunked, *[chunk] * 64).startswith(b"HTTP/1.1 413 ")
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 32 << 10  # KiB


@pytest.mark.parametrize(
    ("encoding", "compress"),
    [("gzip", gzip.compress), ("deflate", zlib.compress), ("zstd", zstandard.compress), ("identity", bytes)],
)
def test_compressed_bodies_are_read_up_to_the_limit(client, encoding, compress):
    headers = {"Content-Encoding": encoding}
    small = compress(json.dumps({"model": "none"}).encode())
    assert client.request("POST", "/api/show", small, **headers).status_code == 404
    large = compress(b" " * (LIMIT + 1))
    assert client.request("POST", "/api/show", large, **headers).status_code == 413


def test_bomb_takes_no_more_than_the_limit(client):
    packer = zlib.compressobj(1, wbits=31)
    bomb = b"".join(packer.compress(b" " * (1 << 20)) for _ in range(128)) + packer.flush()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert client.request("POST", "/api/show", bomb, **{"Content-Encoding": "gzip"}).status_code == 413
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10  # KiB


@pytest.mark.parametrize(
    ("encoding", "body", "expected"),
    [
        ("br", b"x", 415),
        ("gzip, gzip", b"x", 415),
        ("gzip", b"x", 400),
        ("gzip", gzip.compress(b"{}", mtime=0)[:-4], 400),
        ("deflate", b"x", 400),
        ("deflate", zlib.compress(b"{}")[:-4], 400),
        ("zstd", b"x", 400),
        ("zstd", b"\x28\xb5\x2f\xfd\x00\xf8" + b"x" * 20, 400),  # a window that is too large
    ],
)
def test_what_cannot_be_unpacked_is_refused(client, encoding, body, expected):
    response = client.request("POST", "/api/show", body, **{"Content-Encoding": encoding})
    assert (response.status_code, list(response.json())) == (expected, ["error"])


@pytest.mark.parametrize("stop", [["x"] * 65, ["x" * 1025]])
def test_stop_strings_are_few_and_short(stop):
    with pytest.raises(ApiError, match="64 texts of 1024 characters") as caught:
        parse_options({}, {"stop": stop})
    assert caught.value.status == 400


def test_requests_together_hold_no_more_than_the_budget():
    budget = BodyBudget(LIMIT)
    with budget.share() as first, budget.share() as second, budget.share() as small:
        first.grow(6 * LIMIT)
        with pytest.raises(ApiError, match="server busy") as caught:
            second.grow(3 * LIMIT)
        assert (caught.value.status, caught.value.retry_after_s) == (503, 1)
        small.grow(1000)
    with budget.share() as later:
        later.grow(8 * LIMIT)
