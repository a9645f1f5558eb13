"""The two servers that are compared: puna's daemon and llama.cpp's server, each in a process of its own."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import httpx

from benchmarks.weights.files import BenchFile

START_TIMEOUT_S = 180.0


@dataclass(frozen=True)
class Completion:
    """What a server reports of one request."""

    prompt_tokens: int
    prompt_s: float
    generated_tokens: int
    generation_s: float


class Server(Protocol):
    def complete(self, prompt: str, num_tokens: int, *, reuse: bool = False) -> Completion:
        """Greedy, at most num_tokens. reuse: the prompt may come from a cache. Thread safe."""


@dataclass(frozen=True)
class Puna:
    """pid: of the daemon, whose child the worker is."""

    http: httpx.Client
    pid: int
    model: str

    @property
    def url(self) -> str:
        return str(self.http.base_url)

    def complete(self, prompt: str, num_tokens: int, *, reuse: bool = False) -> Completion:
        # No drafts: they would save steps, and what a step takes is what is asked for.
        options = {"temperature": 0, "num_predict": num_tokens, "draft_num_predict": 0}
        body = {"model": self.model, "prompt": prompt, "raw": True, "stream": False, "options": options}
        body["cache_prompt"] = reuse
        reply = self.http.post("/api/generate", json=body)
        reply.raise_for_status()
        r = reply.json()
        return Completion(
            r["prompt_eval_count"],
            r["prompt_eval_duration"] / 1e9,
            r["eval_count"],
            r.get("eval_duration", 0) / 1e9,
        )


@dataclass(frozen=True)
class LlamaCpp:
    http: httpx.Client
    pid: int

    @property
    def url(self) -> str:
        return str(self.http.base_url)

    def complete(self, prompt: str, num_tokens: int, *, reuse: bool = False) -> Completion:
        body = {"prompt": prompt, "n_predict": num_tokens, "temperature": 0.0, "cache_prompt": reuse}
        reply = self.http.post("/completion", json=body)
        reply.raise_for_status()
        t = reply.json()["timings"]
        return Completion(t["prompt_n"], t["prompt_ms"] / 1e3, t["predicted_n"], t["predicted_ms"] / 1e3)


@contextmanager
def puna_server(
    file: BenchFile, threads: int, environment: Mapping[str, str] | None = None
) -> Iterator[Puna]:
    """A daemon on the file's store, its HOME empty by default. environment: further variables."""
    host = f"127.0.0.1:{free_port()}"
    with tempfile.TemporaryDirectory(prefix="puna-bench-") as home:
        env = os.environ | {
            "HOME": home,
            "OLLAMA_MODELS": str(file.store),
            "OLLAMA_HOST": host,
            "OLLAMA_KEEP_ALIVE": "-1",
            "PUNA_NUM_THREADS": str(threads),
            **(environment or {}),
        }
        with running([sys.executable, "-m", "puna.cli", "serve"], f"http://{host}", "/", env) as server:
            yield Puna(server.http, server.pid, file.model)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Running(NamedTuple):
    """A server process."""

    http: httpx.Client
    pid: int


@contextmanager
def running(
    command: list[str], url: str, ready_path: str, env: dict[str, str] | None = None
) -> Iterator[Running]:
    """A server process, ended afterwards; entered once ready_path answers with success."""
    process = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    limits = httpx.Limits(max_connections=64)
    try:
        with httpx.Client(base_url=url, timeout=900, limits=limits, trust_env=False) as http:
            _wait(lambda: _answers(http, ready_path), process)
            yield Running(http, process.pid)
    finally:
        _end(process)


def _wait(is_ready: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while not is_ready():
        if process.poll() is not None:
            raise RuntimeError(f"{process.args!r} ended with status {process.returncode}")
        if time.monotonic() > deadline:
            raise RuntimeError(f"{process.args!r} did not answer within {START_TIMEOUT_S:.0f} s")
        time.sleep(0.01)  # how long a start takes is measured, too


def _answers(http: httpx.Client, path: str) -> bool:
    try:
        return http.get(path).is_success
    except httpx.TransportError:
        return False


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(timeout=20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
