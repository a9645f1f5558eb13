"""A client that goes away ends what was done for it. Over real connections."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager

import httpx
import pytest

import puna.api.ollama.pull as pull_route
from puna.api.app import create_app
from puna.registry.progress import Progress
from tests.api.fake_runtime import Script
from tests.serving import served

pytestmark = pytest.mark.native

CHAT = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


@pytest.fixture
def url(runtime, add_model) -> Iterator[str]:
    """Of a server on a port of its own."""
    add_model("m")
    with served(create_app(runtime)) as port:
        yield f"http://127.0.0.1:{port}"


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@contextmanager
def broken_off(url: str, path: str, body: dict) -> Iterator[None]:
    """A request whose client goes away at the end of the block, before there is any reply."""

    async def send() -> None:
        async with httpx.AsyncClient(base_url=url, timeout=None) as client:
            await client.post(path, json=body)

    loop = asyncio.new_event_loop()
    task = loop.create_task(send())
    thread = threading.Thread(target=lambda: loop.run_until_complete(asyncio.wait([task])))
    thread.start()
    try:
        yield
    finally:
        loop.call_soon_threadsafe(task.cancel)
        thread.join()
        loop.close()


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/api/chat", CHAT),
        ("/api/generate", {"model": "m", "prompt": "hi"}),
        ("/v1/chat/completions", {**CHAT, "stream": True}),
        ("/v1/completions", {"model": "m", "prompt": "hi", "stream": True}),
    ],
)
def test_disconnect_ends_a_stream(url, runtime, path, body):
    runtime.script = Script(hangs=True)
    with httpx.stream("POST", url + path, json=body) as response:
        chunks = response.iter_raw()  # dropping it would close the connection
        next(chunks)
        assert runtime.num_generating == 1
    eventually(lambda: runtime.num_generating == runtime.num_held == 0)


@pytest.mark.parametrize(
    ("path", "body"), [("/api/chat", {**CHAT, "stream": False}), ("/v1/chat/completions", CHAT)]
)
def test_disconnect_ends_a_reply_that_is_not_streamed(url, runtime, path, body):
    runtime.script = Script(hangs=True)
    with broken_off(url, path, body):
        eventually(lambda: runtime.num_generating == 1)
    eventually(lambda: runtime.num_generating == runtime.num_held == 0)


def test_disconnect_ends_all_embeddings(url, runtime):
    runtime.script = Script(hangs=True)
    with broken_off(url, "/api/embed", {"model": "m", "input": ["a", "b", "c"] * 200}):
        eventually(lambda: runtime.num_generating > 100)
    eventually(lambda: runtime.num_generating == runtime.num_held == 0)


@pytest.mark.parametrize("stream", [True, False])
def test_disconnect_ends_all_choices(url, runtime, stream):
    runtime.script = Script(hangs=True)
    with broken_off(url, "/v1/chat/completions", {**CHAT, "n": 4, "stream": stream}):
        eventually(lambda: runtime.num_generating == 4)
    eventually(lambda: runtime.num_generating == runtime.num_held == 0)


def test_disconnect_before_the_first_token_ends_a_stream(url, runtime):
    runtime.script = Script(pieces=[], hangs=True)
    with broken_off(url, "/api/chat", CHAT):
        eventually(lambda: runtime.num_generating == 1)
    eventually(lambda: runtime.num_generating == runtime.num_held == 0)


def test_disconnect_ends_the_wait_for_a_model(url, runtime):
    runtime.script = Script(load_hangs=True)
    with broken_off(url, "/api/chat", CHAT):
        eventually(lambda: runtime.num_held == 1)
    eventually(lambda: runtime.num_held == 0)


def test_disconnect_ends_a_stream_that_nobody_reads(url, runtime):
    runtime.script = Script(pieces=[f"{n} " + "x" * 100_000 for n in range(300)])
    with httpx.stream("POST", f"{url}/api/chat", json=CHAT) as response:
        chunks = response.iter_raw()  # dropping it would close the connection
        next(chunks)
        eventually(lambda: runtime.num_generating == 1)
    eventually(lambda: runtime.num_generating == runtime.num_held == 0)


def test_disconnect_ends_a_pull(url, monkeypatch):
    pulling = threading.Event()
    ended = threading.Event()

    async def pull(*_: object) -> AsyncIterator[Progress]:
        try:
            yield Progress("pulling manifest")
            pulling.set()
            await asyncio.Event().wait()
        finally:
            ended.set()

    monkeypatch.setattr(pull_route, "pull_model", pull)
    with httpx.stream("POST", f"{url}/api/pull", json={"model": "x"}) as response:
        chunks = response.iter_raw()  # dropping it would close the connection
        next(chunks)
        assert pulling.wait(10)
    assert ended.wait(10)


def test_upload_that_is_broken_off_leaves_nothing(url, runtime):
    before = set(runtime.store.blobs.iterdir())
    with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2]))) as connection:
        path = f"/api/blobs/sha256:{'0' * 64}"
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10000000\r\n\r\n"
        connection.sendall(head.encode() + b"x" * 2_000_000)
        eventually(lambda: set(runtime.store.blobs.iterdir()) > before)
    eventually(lambda: set(runtime.store.blobs.iterdir()) == before)


def test_request_that_is_broken_off_is_no_error_of_the_server(url, caplog):
    with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2]))) as connection:
        connection.sendall(b"POST /api/chat HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
    assert httpx.get(url).status_code == 200
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def test_server_serves_on_after_disconnects(url, runtime):
    for _ in range(3):
        runtime.script = Script(hangs=True)
        with httpx.stream("POST", f"{url}/api/chat", json=CHAT) as response:
            chunks = response.iter_raw()
            next(chunks)
    runtime.script = Script()
    reply = httpx.post(f"{url}/api/chat", json={**CHAT, "stream": False}).json()
    assert reply["message"]["content"] == "Hello"


def test_requests_that_never_got_a_reply_are_counted_as_499(url, runtime):
    runtime.script = Script(load_hangs=True)
    with broken_off(url, "/api/chat", {**CHAT, "stream": False}):
        eventually(lambda: runtime.num_held == 1)
    eventually(lambda: 'route="/api/chat",status="499"} 1.0' in httpx.get(f"{url}/metrics").text)
