"""A request for a model that had to go: how long until its first token?"""

from __future__ import annotations

import time
from collections.abc import Sequence
from statistics import median

from benchmarks.figures import Row, Target, p50_p95, percentile, seconds
from benchmarks.memory.daemon import Daemon
from benchmarks.scenario import Finding, Findings, Setup
from benchmarks.servers.clients import LlamaCppClient, PunaClient
from benchmarks.servers.prompts import Prompts
from benchmarks.servers.servers import puna_server
from benchmarks.weights.files import BenchFile, bench_file

_PROMPT_TOKENS = 32
_ONE = {"OLLAMA_MAX_LOADED_MODELS": "1"}
_TARGET = Target(0.150, is_least=False, show=seconds)
_STARTS = {"default": [], "without warm-up": ["--no-warmup"]}
"""How llama.cpp's server can be started; the faster one counts."""


def measure(setup: Setup) -> Findings:
    files = [bench_file("Q4_0"), bench_file("Q4_1")]
    prompts = Prompts(files[0].path)
    rounds = 3 if setup.quick else 20
    with puna_server(files[0], setup.threads, _ONE) as server:
        daemon, clients = Daemon(server.url), [PunaClient(server.url, file.model) for file in files]
        for client in clients:
            client.stream(prompts.take(_PROMPT_TOKENS), 4)  # reads the file from disk
        switched = [_switched_s(daemon, client, prompts) for _ in range(rounds) for client in clients]
        unloaded = [_unloaded_s(daemon, client, prompts) for _ in range(rounds // 2) for client in clients]
        stayed = [clients[-1].stream(prompts.take(_PROMPT_TOKENS), 1).first_token_s for _ in range(rounds)]
    label, started = _started_s(setup, files, prompts)
    title = f"switch to a model that was evicted, {files[0].title} and {files[1].title}"
    for row in _rows(switched, unloaded, stayed, label, started):
        yield Finding(title, row)


def _switched_s(daemon: Daemon, client: PunaClient, prompts: Prompts) -> float:
    """To the first token, of a model that another one has replaced."""
    if (resident := daemon.resident()) == [client.model]:
        raise RuntimeError(f"{client.model} is still resident")
    took = client.stream(prompts.take(_PROMPT_TOKENS), 1).first_token_s
    if daemon.resident() != [client.model]:
        raise RuntimeError(f"{client.model} took nobody's place: {resident}")
    return took


def _unloaded_s(daemon: Daemon, client: PunaClient, prompts: Prompts) -> float:
    """The same, when nothing was kept of it."""
    for model in daemon.resident():
        daemon.unload(model)
    daemon.unload(client.model)
    return client.stream(prompts.take(_PROMPT_TOKENS), 1).first_token_s


def _started_s(setup: Setup, files: Sequence[BenchFile], prompts: Prompts) -> tuple[str, list[float]]:
    """From the start of a llama.cpp server to its first token, and with what options."""
    rounds = 1 if setup.quick else 3
    took: dict[str, list[float]] = {label: [] for label in _STARTS}
    for _ in range(rounds):
        for label, options in _STARTS.items():
            for file in files:
                text, start = prompts.take(_PROMPT_TOKENS), time.perf_counter()
                with setup.peer.server(file, setup.threads, 1, "default", options=options) as server:
                    stream = LlamaCppClient(server.url).stream(text, 1)
                    took[label].append(stream.arrivals[0] - start)
    best = min(took, key=lambda label: median(took[label]))
    return best, took[best]


def _rows(
    switched: Sequence[float],
    unloaded: Sequence[float],
    stayed: Sequence[float],
    label: str,
    started: Sequence[float],
) -> list[Row]:
    better = median(started) / median(switched)
    return [
        Row(
            f"first token after the switch, p50 / p95; llama.cpp: server started anew, {label}",
            p50_p95(switched),
            p50_p95(started),
            better,
            _TARGET,
            percentile(switched, 95),
        ),
        Row("slowest", seconds(max(switched)), seconds(max(started))),
        Row(
            "first token after a full unload (`keep_alive` 0), p50 / p95",
            p50_p95(unloaded),
            ratio=median(started) / median(unloaded),
        ),
        Row("first token of a resident model, p50 / p95", p50_p95(stayed)),
    ]
