"""The registry's HTTP face: threads, and files that the system sends by itself."""

from __future__ import annotations

import json
import os
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

from tests.registry.loopback.contents import Contents
from tests.registry.loopback.faults import Fault
from tests.registry.loopback.uploads import UploadHandler, Uploads

_SEND_BYTES = 256 << 10
_MANIFEST = re.compile(r"/v2/(.+)/manifests/([^/]+)")
_BLOB = re.compile(r"/v2/(.+)/blobs/(sha256:[0-9a-f]{64})")
_UPLOAD = re.compile(r"/uploads/(\w+)")
_DIRECT = re.compile(r"/direct/(sha256:[0-9a-f]{64})")


class Sent(NamedTuple):
    """A range of a blob as far as it was sent."""

    digest: str
    start: int
    end: int


@dataclass
class Behaviour:
    """What the registry does besides answering; may be changed while it runs."""

    redirects: bool = True
    """Whether blobs are somewhere else, as Ollama's are."""
    redirect_host: str = "localhost"
    """Another name than the registry's, 127.0.0.1."""
    location: str | None = None
    """Where blobs are said to be, instead."""
    token: str | None = None
    """What requests to the registry itself have to show; it is given to everybody."""
    bytes_per_s: float | None = None
    """Of all responses together."""
    fault: Callable[[], Fault | None] = lambda: None
    """Asked for each response that carries a blob."""
    uploads: Uploads = field(default_factory=Uploads)
    token: str = ""
    """Without it, nothing of the registry's own is answered; who signs gets it."""


@dataclass
class Registry:
    """`with Registry(Contents(path)) as registry`: serves on `port` of loopback until the block ends."""

    contents: Contents
    behaviour: Behaviour = field(default_factory=Behaviour)
    requests: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    """(method, path, headers), in the order in which they came."""
    sent: list[Sent] = field(default_factory=list)
    num_sending: int = 0

    def __post_init__(self) -> None:
        registry = self

        class Handler(_Handler):
            def __init__(self, *arguments: Any) -> None:
                self.registry = registry
                super().__init__(*arguments)

        self._server = _Server(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]
        self.host = f"127.0.0.1:{self.port}"
        self._pace = threading.Lock()
        self._counting = threading.Lock()
        self._free_at_s = 0.0

    def __enter__(self) -> Registry:
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def blob_requests(self) -> list[str]:
        """Paths of requests for blobs."""
        return [path for _, path, _ in self.requests if "/manifests/" not in path]

    @contextmanager
    def sending(self) -> Iterator[None]:
        with self._counting:
            self.num_sending += 1
        try:
            yield
        finally:
            with self._counting:
                self.num_sending -= 1

    def wait_until_idle(self) -> None:
        """Until no blob is on its way any more: a client that was killed is noticed a little later."""
        while self.num_sending:
            time.sleep(0.005)

    def wait_for_turn(self, num_bytes: int) -> None:
        """Until so many bytes may be sent."""
        if self.behaviour.bytes_per_s is None:
            return
        with self._pace:
            now = time.monotonic()
            at = max(self._free_at_s, now - 0.01)
            self._free_at_s = at + num_bytes / self.behaviour.bytes_per_s
        if at > now:
            time.sleep(at - now)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that go are no news."""


class _Handler(UploadHandler, BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    registry: Registry

    def parse_request(self) -> bool:
        """False: the request has been answered."""
        if not super().parse_request():
            return False
        token = self.registry.behaviour.token
        if self.path.startswith("/token?") and ":" in self.headers.get("Authorization", ""):
            self.reply(200, json.dumps({"token": token}).encode())
        elif (
            token
            and self.path.startswith(("/v2/", "/uploads/"))
            and self.headers.get("Authorization") != f"Bearer {token}"
        ):
            self.close_connection = True  # with the body unread
            realm = (
                f'Bearer realm="http://{self.registry.host}/token",service="r",scope="repository:me/m:push"'
            )
            self.reply(401, headers={"WWW-Authenticate": realm})
        else:
            return True
        return False

    def do_GET(self) -> None:
        self.log_request_of_test()
        token = self.registry.behaviour.token
        if self.path.startswith("/token?"):
            self.reply(200, b'{"token":"%s"}' % (token or "").encode())
        elif token and self.path.startswith("/v2/") and self.headers["Authorization"] != f"Bearer {token}":
            realm = f'Bearer realm="http://{self.registry.host}/token",scope="repository:library/m:pull"'
            self.reply(401, b"who are you", headers={"WWW-Authenticate": realm})
        elif match := _MANIFEST.fullmatch(self.path):
            found = self.registry.contents.manifests.get((match[1], match[2]))
            self.reply(200, *found) if found else self.reply(404, b"manifest unknown")
        elif match := _BLOB.fullmatch(self.path):
            if not self.registry.contents.blob(match[2]).exists():
                self.reply(404, b"blob unknown")
            elif self.registry.behaviour.redirects:
                host = f"{self.registry.behaviour.redirect_host}:{self.registry.port}"
                self.reply(
                    307,
                    b"",
                    headers={
                        "Location": self.registry.behaviour.location or f"http://{host}/direct/{match[2]}"
                    },
                )
            else:
                self.send_blob(match[2])
        elif match := _UPLOAD.match(self.path):
            self.get_position(match[1])
        elif match := _DIRECT.fullmatch(self.path):
            self.send_blob(match[1])
        else:
            self.reply(404, b"not found")

    do_HEAD = do_GET  # noqa: N815 named so by http.server

    def reply(
        self, status: int, body: bytes = b"", kind: str = "text/plain", headers: dict[str, str] | None = None
    ) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": len(body), **(headers or {})}.items():
            self.send_header(name, str(value))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def send_blob(self, digest: str) -> None:
        path = self.registry.contents.blob(digest)
        size = path.stat().st_size
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        fault = self.registry.behaviour.fault() or Fault("")
        start, end = (
            (int(asked[1]), min(int(asked[2]) + 1, size)) if asked and fault.kind != "no range" else (0, size)
        )
        ranged = (start, end) != (0, size)
        if fault.kind in ("refuse", "gone"):
            return self.reply(403 if fault.kind == "gone" else 429 if fault.after < 0.5 else 500, b"not now")
        total, length, stop = size, end - start, end
        if fault.kind == "short":
            stop = end = start + max(int(length * fault.after), 1)
            length = end - start
        elif fault.kind == "long length":
            length += 1000
        elif fault.kind == "long":
            length, stop = length + 1000, stop + 1000
        elif fault.kind == "other total":
            total += 1
        elif fault.kind in ("drop", "stall"):
            stop = start + int(length * fault.after)
        shown = start + 1 if fault.kind == "other range" else start
        self.send_response(206 if ranged else 200)
        self.send_header("Content-Length", str(length))
        if ranged:
            self.send_header("Content-Range", f"bytes {shown}-{end - 1}/{total}")
        self.end_headers()
        if self.command != "HEAD":
            self._send(path, Sent(digest, start, end), stop, fault)
        return None

    def _send(self, path: Path, wanted: Sent, stop: int, fault: Fault) -> None:
        """Up to `stop`, whatever was wanted."""
        position = wanted.start
        with self.registry.sending(), path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            try:
                while position < stop:
                    count = min(_SEND_BYTES, stop - position)
                    self.registry.wait_for_turn(count)
                    if fault.kind == "slow":
                        time.sleep(0.01)
                    if fault.kind == "corrupt" or position >= size:
                        self.connection.sendall(bytes(count))
                        position += count
                    else:
                        self.connection.settimeout(None)
                        position += os.sendfile(self.connection.fileno(), file.fileno(), position, count)
            finally:
                self.registry.sent.append(wanted._replace(end=min(position, wanted.end)))
        if fault.kind == "stall":
            time.sleep(60)
        if fault.kind in ("drop", "long length", "stall"):
            self.close_connection = True
            with suppress(OSError):
                self.connection.shutdown(socket.SHUT_RDWR)

    def log_message(self, *_: object) -> None:
        pass
