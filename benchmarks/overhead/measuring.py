"""What is measured of each build, the builds in turn."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TypeVar

from benchmarks.overhead.comparing import Figure, Results
from benchmarks.overhead.daemons import Daemon, daemon_of
from benchmarks.overhead.protocols import NDJSON, SSE, asking
from benchmarks.overhead.streams import first_token_s, token_cost
from benchmarks.servers.prompts import Prompts
from benchmarks.weights.files import BenchFile

T = TypeVar("T")

Builds = Mapping[str, Path]
"""Checkouts by their names."""

_PROMPT_TOKENS = 1000
_REPLY_TOKENS = 1600
"""Of all streams together."""
_FIRST_TOKENS_PER_ROUND = 4

FIRST_TOKEN = Figure("first token, prompt of 1,000 tokens", "ms", 2, most_added=1)
READY = Figure("start until `GET /` is answered", "s", 3, most=0.4)
READY_CPU = Figure("the same, processor time of the daemon's process", "s", 3)
COLD = Figure("cold daemon: first token of SmolLM2", "s", 3, most=0.12)
WITH_START = Figure("start and first token of SmolLM2, asked as soon as it answers", "s", 3)
EMPTY = Figure("memory of all processes, no model", "MiB", most=130)
LOADED = Figure("the same, SmolLM2 loaded and used", "MiB")


def measure_requests(builds: Builds, file: BenchFile, rounds: int, results: Results) -> None:
    """Around the replayed model of `file`; the daemons of all builds are there all the time."""
    text = Prompts(file.path).take(_PROMPT_TOKENS)
    with ExitStack() as opened:
        daemons = {name: opened.enter_context(daemon_of(path, file.store)) for name, path in builds.items()}
        for daemon in daemons.values():
            for protocol in (NDJSON, SSE):
                first_token_s(daemon, protocol.request(file.model, asking(text, 64)), protocol)
            daemon.settle()
        for i in range(rounds):
            for j in range(_FIRST_TOKENS_PER_ROUND):
                # Only the end differs: KV of all before it is cached, and what is left to compute is little.
                request = NDJSON.request(file.model, asking(f"{text} {i} {j}", 4))
                for name, daemon in _in_turn(daemons, i + j):
                    results.add(FIRST_TOKEN, name, 1e3 * first_token_s(daemon, request, NDJSON))
            _measure_tokens(daemons, file.model, i, results)


def _measure_tokens(daemons: Mapping[str, Daemon], model: str, i: int, results: Results) -> None:
    for protocol in (NDJSON, SSE):
        for num_streams in (1, 16):
            num_tokens = _REPLY_TOKENS // num_streams
            requests = [
                protocol.request(model, asking(f"Story {number}, please.", num_tokens))
                for number in range(num_streams)
            ]
            streams = f"{protocol.name}, {num_streams} stream{'s' if num_streams > 1 else ''}"
            cpu = Figure(f"processor time of a token, {streams}", "µs", most_added=10)
            wall = Figure(f"time of a token, {streams}", "µs", most_added=10)
            for name, daemon in _in_turn(daemons, i):
                cost = token_cost(daemon, requests, protocol)
                results.add(cpu, name, cost.cpu_us)
                results.add(wall, name, cost.wall_us)


def measure_starts(builds: Builds, file: BenchFile, rounds: int, results: Results) -> None:
    """Of daemons that are started anew each time, with a real model whose file is in the page cache."""
    file.path.read_bytes()
    request = NDJSON.request(file.model, asking("Tell me a story.", 16))
    for i in range(rounds):
        for name, checkout in _in_turn(builds, i):
            with daemon_of(checkout, file.store) as daemon:
                results.add(READY, name, daemon.ready_s)
                results.add(READY_CPU, name, daemon.ready_cpu_s)
                daemon.settle()
                results.add(EMPTY, name, daemon.memory_bytes() / 2**20)
                results.add(COLD, name, first_token_s(daemon, request, NDJSON))
                daemon.settle()
                results.add(LOADED, name, daemon.memory_bytes() / 2**20)
            with daemon_of(checkout, file.store) as daemon:
                results.add(WITH_START, name, daemon.ready_s + first_token_s(daemon, request, NDJSON))


def _in_turn(of_builds: Mapping[str, T], i: int) -> Iterator[tuple[str, T]]:
    items = list(of_builds.items())
    yield from items if i % 2 == 0 else reversed(items)
