"""A server that speaks the documented wire format but knows only what a test tells it."""

from __future__ import annotations

import http.server
import io
import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from puna.cli import main as main_module
from puna.cli.client import Client
from puna.config.settings import Settings

SHOW = {
    "details": {"family": "llama", "parameter_size": "134.52M", "quantization_level": "Q4_1"},
    "model_info": {
        "general.architecture": "llama",
        "llama.context_length": 2048,
        "llama.embedding_length": 576,
    },
    "capabilities": ["completion"],
    "modified_at": "2026-01-02T03:04:05Z",
}


class FakeServer:
    """`answers[method, path]` is a dict (JSON), a list (NDJSON), (status, dict), or a function of it."""

    def __init__(self) -> None:
        self.answers: dict[tuple[str, str], Any] = {
            ("HEAD", "/"): {},
            ("GET", "/api/version"): {"version": "9.9.9"},
            ("POST", "/api/show"): dict(SHOW),
        }
        self.requests: list[tuple[str, str, Any]] = []
        self.num_disconnects = 0
        self._http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.port = self._http.server_address[1]
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,))
        self._thread.start()

    def close(self) -> None:
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()

    def bodies(self, path: str) -> list[Any]:
        return [body for _, requested, body in self.requests if requested == path]

    def _handler(self) -> type[http.server.BaseHTTPRequestHandler]:
        server = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def respond(self) -> None:
                data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                body = json.loads(data) if data[:1] == b"{" else data
                server.requests.append((self.command, self.path, body))
                answer = server.answers.get((self.command, self.path), (404, {"error": "404 page not found"}))
                self.send(answer(body) if callable(answer) else answer)

            do_GET = do_POST = do_HEAD = do_DELETE = respond  # noqa: N815

            def send(self, answer: Any) -> None:
                status, content = answer if isinstance(answer, tuple) else (200, answer)
                self.send_response(status)
                self.end_headers()
                if self.command == "HEAD" or content is None:
                    return
                try:
                    for item in content if isinstance(content, list) else [content]:
                        self.wfile.write(json.dumps(item).encode() + b"\n")
                except (BrokenPipeError, ConnectionResetError):
                    server.num_disconnects += 1

            def log_message(self, *_: object) -> None:
                pass

        return Handler


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path) -> Iterator[FakeServer]:
    """Reachable at OLLAMA_HOST; HOME is an empty directory."""
    fake = FakeServer()
    monkeypatch.setenv("OLLAMA_HOST", f"127.0.0.1:{fake.port}")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")  # must not be asked
    yield fake
    fake.close()


@pytest.fixture
def client(server: FakeServer) -> Iterator[Client]:
    assert server.port
    with Client(Settings.from_environment().host) as client:
        yield client


class Result:
    """What a command printed, and its exit status."""

    def __init__(self, status: int, out: str, err: str) -> None:
        self.status, self.out, self.err = status, out, err


@pytest.fixture
def puna(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """puna("list", "x", stdin="..."): runs the command in this process; stdin and stdout are no terminals."""

    def run(*arguments: str, stdin: str = "") -> Result:
        monkeypatch.setattr("sys.argv", ["puna", *arguments])
        monkeypatch.setattr("sys.stdin", io.StringIO(stdin))
        status = 0
        try:
            main_module.main()
        except SystemExit as error:
            status = int(error.code or 0)
        captured = capsys.readouterr()
        return Result(status, captured.out, captured.err)

    return run
