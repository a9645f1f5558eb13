"""The servers: one daemon for all four models; a llama.cpp server for each; llama.cpp's router."""

from __future__ import annotations

import configparser
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.memory.processes import family, memory_of
from benchmarks.retrieval.files import EMBED, RERANK
from benchmarks.retrieval.turn import Endpoint, Stack
from benchmarks.servers.peer import Peer
from benchmarks.servers.servers import free_port, puna_server, running
from benchmarks.weights.files import BenchFile

CONTEXT_TOKENS, SLOTS = 8192, 4
_TEXT_TOKENS = 512
"""Of an encoder's context."""


@dataclass(frozen=True)
class Servers:
    stack: Stack
    pids: list[int]

    def memory_bytes(self) -> int:
        """Of all processes, now; pages of files that they map are counted once."""
        return memory_of(*(member for pid in self.pids for member in family(pid))).pss


@contextmanager
def one_daemon(files: Mapping[str, BenchFile], threads: int, limit_bytes: int) -> Iterator[Servers]:
    first = next(iter(files.values()))
    environment = {
        "PUNA_MEMORY_LIMIT": str(limit_bytes),
        "OLLAMA_CONTEXT_LENGTH": str(CONTEXT_TOKENS),
        "OLLAMA_MAX_LOADED_MODELS": "4",
    }
    with puna_server(first, threads, environment) as server:
        stack = {role: Endpoint(server.http, file.model) for role, file in files.items()}
        yield Servers(stack, [server.pid])


@contextmanager
def a_server_each(files: Mapping[str, BenchFile], threads: int, peer: Peer) -> Iterator[Servers]:
    with ExitStack() as servers:
        stack, pids = {}, []
        for role, file in files.items():
            context = SLOTS * (_TEXT_TOKENS if role in (EMBED, RERANK) else CONTEXT_TOKENS)
            server = servers.enter_context(
                peer.server(
                    file, threads, SLOTS, "default", context_tokens=context, options=_options(role).as_flags()
                )
            )
            stack[role] = Endpoint(server.http, file.model)
            pids.append(server.pid)
        yield Servers(stack, pids)


@contextmanager
def router(files: Mapping[str, BenchFile], threads: int, peer: Peer, max_models: int) -> Iterator[Servers]:
    """One address for all; at most max_models at once, each in a server of its own behind it."""
    assert peer.binary is not None, "the router is a part of the llama-server binary: run `make peer` first"
    presets = configparser.ConfigParser()
    for role, file in files.items():
        context = SLOTS * (_TEXT_TOKENS if role in (EMBED, RERANK) else CONTEXT_TOKENS)
        presets[role] = {
            "model": str(file.path),
            "ctx-size": str(context),
            "parallel": str(SLOTS),
            "threads": str(threads),
            "threads-batch": str(threads),
            "cache-ram": "0",
            **_options(role).values,
        }
    with tempfile.TemporaryDirectory() as folder:
        path, port = Path(folder) / "presets.ini", free_port()
        with path.open("w") as file_object:
            presets.write(file_object)
        command = [
            *(str(peer.binary), "--host", "127.0.0.1", "--port", str(port)),
            *("--models-preset", str(path), "--models-max", str(max_models)),
        ]
        with running(command, f"http://127.0.0.1:{port}", "/health") as server:
            # It may drop a request to a model that it exchanges for another one.
            stack = {role: Endpoint(server.http, role, asks_again=True) for role in files}
            yield Servers(stack, [server.pid])


@dataclass(frozen=True)
class _Options:
    values: Mapping[str, str]

    def as_flags(self) -> list[str]:
        return [
            word
            for name, value in self.values.items()
            for word in ([f"--{name}"] if value == "true" else [f"--{name}", value])
        ]


def _options(role: str) -> _Options:
    """Encoders compute a text at once: their batches must hold it."""
    batches = {"batch-size": "2048", "ubatch-size": "2048"}
    if role == EMBED:
        return _Options({"embeddings": "true", "pooling": "mean", **batches})
    return _Options({"reranking": "true", **batches} if role == RERANK else {})
