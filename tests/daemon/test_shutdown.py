"""A signal leaves time to save what is cached; a second one does not."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from pathlib import Path
from types import SimpleNamespace

import pytest
import uvloop

from puna.config.host import Host
from puna.daemon import server
from puna.daemon.listening import bind
from puna.daemon.server import _close_when_asked, _Shutdown

pytestmark = pytest.mark.unit


class FakeRuntime:
    def __init__(self, save_s: float, directory: Path) -> None:
        self.settings = SimpleNamespace(drain_s=0.1, registry_key=directory / "key")
        self.did: list[str] = []
        self._save_s = save_s
        self.closed = asyncio.Event()

    async def start(self) -> None:
        pass

    async def save_prefixes(self) -> None:
        self.did.append("begin")
        await asyncio.sleep(self._save_s)
        self.did.append("saved")

    async def close(self) -> None:
        self.did.append("closed")
        self.closed.set()


@pytest.mark.parametrize(
    ("num_signals", "did"), [(1, ["begin", "saved", "closed"]), (2, ["begin", "closed"])]
)
def test_only_one_who_hurries_does_not_wait_for_what_is_saved(virtual_time, num_signals, did, tmp_path):
    async def main():
        runtime, shutdown = (
            FakeRuntime(save_s=4.0, directory=tmp_path),
            _Shutdown(SimpleNamespace(stop=lambda: None, abort=lambda: None)),
        )
        closing = asyncio.create_task(_close_when_asked(runtime, shutdown))
        for _ in range(num_signals):
            shutdown.on_signal()
            await asyncio.sleep(0.1)
        await closing
        assert runtime.did == did
        await asyncio.sleep(10)
        assert runtime.did == did

    virtual_time(main)


def test_replies_under_way_are_finished_and_the_service_manager_told(monkeypatch, tmp_path):
    runtime = FakeRuntime(save_s=0, directory=tmp_path)
    runtime.settings.drain_s = 30.0
    told = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    told.bind(str(tmp_path / "notify"))
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))

    async def app(_scope, _receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"begun", "more_body": True})
        await asyncio.sleep(0.2)
        await send({"type": "http.response.body", "body": b"finished"})

    async def main() -> bytes:
        with bind(Host(port=0)) as listener:
            running = asyncio.create_task(server._run(runtime, lambda _: app, listener, None))
            reader, writer = await asyncio.open_connection(*listener.getsockname())
            writer.write(b"GET / HTTP/1.1\r\nHost: puna\r\n\r\n")
            await reader.readuntil(b"begun")
            os.kill(os.getpid(), signal.SIGTERM)
            text = await reader.read()
            await running
            writer.close()
        return text

    assert b"finished" in uvloop.run(main())
    with told:
        assert [told.recv(64), told.recv(64)] == [b"READY=1", b"STOPPING=1"]


@pytest.mark.parametrize("is_read", [True, False])
def test_running_requests_are_told_of_the_end_however_long_saving_takes(monkeypatch, is_read, tmp_path):
    runtime = FakeRuntime(save_s=0.5, directory=tmp_path)

    async def app(_scope, _receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        body = b"begun" + b"." * (0 if is_read else 16 << 20)
        await send({"type": "http.response.body", "body": body, "more_body": True})
        await runtime.closed.wait()
        await send({"type": "http.response.body", "body": b"shutting down"})

    monkeypatch.setattr(server, "_LAST_WORDS_S", 60 if is_read else 0.5)

    async def main() -> bytes:
        with bind(Host(port=0)) as listener:
            running = asyncio.create_task(server._run(runtime, lambda _: app, listener, None))
            reader, writer = await asyncio.open_connection(*listener.getsockname())
            writer.write(b"GET / HTTP/1.1\r\nHost: puna\r\n\r\n")
            text = await reader.readuntil(b"begun")
            os.kill(os.getpid(), signal.SIGTERM)
            if is_read:
                text += await reader.read()
            await running
            writer.close()
        return text

    text = uvloop.run(main())
    assert runtime.did == ["begin", "saved", "closed"]
    assert (b"shutting down" in text) == is_read
