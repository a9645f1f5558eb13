"""The two servers that are compared: puna's daemon and llama.cpp's server, each in a process of its own."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import httpx

MODEL = "bench"
START_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Completion:
    """What a server reports of one request."""

    prompt_tokens: int
    prompt_s: float
    generated_tokens: int
    generation_s: float


class Server(Protocol):
    name: str

    def complete(self, prompt: str, num_tokens: int) -> Completion:
        """Greedy, at most num_tokens. Thread safe."""


@dataclass(frozen=True)
class Puna:
    http: httpx.Client
    name: str = "puna"

    def complete(self, prompt: str, num_tokens: int) -> Completion:
        options = {"temperature": 0, "num_predict": num_tokens}
        body = {"model": MODEL, "prompt": prompt, "raw": True, "stream": False, "options": options}
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
    name: str = "llama.cpp"

    def complete(self, prompt: str, num_tokens: int) -> Completion:
        body = {"prompt": prompt, "n_predict": num_tokens, "temperature": 0.0, "cache_prompt": False}
        reply = self.http.post("/completion", json=body)
        reply.raise_for_status()
        t = reply.json()["timings"]
        return Completion(t["prompt_n"], t["prompt_ms"] / 1e3, t["predicted_n"], t["predicted_ms"] / 1e3)

    def exact_prompt(self, text: str, num_tokens: int) -> str:
        """The beginning of `text` that is num_tokens tokens long."""
        tokens = self.http.post("/tokenize", json={"content": text}).json()["tokens"][:num_tokens]
        prompt: str = self.http.post("/detokenize", json={"tokens": tokens}).json()["content"]
        return prompt


@contextmanager
def puna_server(gguf: Path, threads: int) -> Iterator[Puna]:
    """A daemon with a store of its own that holds the one model."""
    with tempfile.TemporaryDirectory(prefix="puna-bench-") as store, socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        host = f"127.0.0.1:{probe.getsockname()[1]}"
        probe.close()
        env = os.environ | {"OLLAMA_MODELS": store, "OLLAMA_HOST": host, "PUNA_NUM_THREADS": str(threads)}
        _import_model(gguf, Path(store))
        with _process([sys.executable, "-m", "puna.cli", "serve"], env) as http_of:
            yield Puna(http_of(f"http://{host}"))


def _import_model(gguf: Path, store: Path) -> None:
    from puna.registry import ModelName, Store
    from puna.registry.create import create_from_gguf

    models = Store(store)
    with gguf.open("rb") as content:
        digest = models.add_blob(content)
    create_from_gguf(models, ModelName.parse(MODEL), digest)


@contextmanager
def llamacpp_server(gguf: Path, threads: int, slots: int) -> Iterator[LlamaCpp]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "benchmarks.llamacpp", str(gguf), str(port), str(threads), str(slots)]
    with _process(command, dict(os.environ)) as http_of:
        yield LlamaCpp(http_of(f"http://127.0.0.1:{port}"))


@contextmanager
def _process(command: list[str], env: dict[str, str]) -> Iterator[_Connector]:
    process = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    connector = _Connector(process)
    try:
        yield connector
    finally:
        connector.close()
        process.terminate()
        process.wait(timeout=20)


class _Connector:
    """Waits until the process answers; closes the client with it."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._client: httpx.Client | None = None

    def __call__(self, url: str) -> httpx.Client:
        limits = httpx.Limits(max_connections=64)
        self._client = httpx.Client(base_url=url, timeout=600, limits=limits)
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                raise RuntimeError(f"{self._process.args!r} ended with {self._process.returncode}")
            try:
                if self._client.get("/").status_code < 500:
                    return self._client
            except httpx.TransportError:
                pass
            time.sleep(0.1)
        raise RuntimeError(f"{self._process.args!r} did not answer within {START_TIMEOUT_S:.0f} s")

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
