"""Memory for a few requests, and 32 of them: all finish with the same text; afterwards no memory is kept."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.figures import Row, Target, seconds
from benchmarks.scenario import Finding, Findings, Setup
from benchmarks.servers.clients import PunaClient, Stream, makespan_s, stream_all
from benchmarks.servers.metrics import Metrics
from benchmarks.servers.prompts import Prompts
from benchmarks.servers.servers import puna_server
from benchmarks.weights.files import BenchFile, bench_file

_NUM_REQUESTS = 32
_NEW_TOKENS = 96
_LIMIT = "16MiB"  # 45 blocks of this model, for requests that grow to 9 to 17 blocks each
_IDLE_S = 3
_PATIENCE_S = 20


def measure(setup: Setup) -> Findings:
    file = bench_file("Q4_0")
    prompts = Prompts(file.path)
    new_tokens = _NEW_TOKENS // 2 if setup.quick else _NEW_TOKENS
    texts = [prompts.take(40 + 4 * i) for i in range(_NUM_REQUESTS)]
    ample, scarce = (
        _run(setup, file, texts, new_tokens, limit) for limit in ({}, {"OLLAMA_KVCACHED_MEMORY_GB": _LIMIT})
    )
    title = f"{_NUM_REQUESTS} requests with {_LIMIT} of KV memory, {file.title}"
    for row in [*_pressure_rows(ample.streams, scarce.streams, scarce.metrics), _idle_row(ample, scarce)]:
        yield Finding(title, row)


@dataclass(frozen=True)
class _Run:
    streams: list[Stream]
    metrics: Metrics
    """When all were done."""
    idle_s: float | None
    """From then on until no KV memory was committed; None: some stays."""

    @property
    def memory(self) -> str:
        kept = f"{self.metrics.total('puna_kv_committed_bytes') / 2**20:.1f} MiB"
        if self.idle_s is None:
            return f"{kept}, still some after {_PATIENCE_S} s"
        return f"{kept}, none after {seconds(self.idle_s)}"


def _run(
    setup: Setup, file: BenchFile, texts: Sequence[str], new_tokens: int, environment: dict[str, str]
) -> _Run:
    with puna_server(file, setup.threads, {"PUNA_KV_IDLE": f"{_IDLE_S}s", **environment}) as server:
        streams = stream_all(PunaClient(server.url, file.model), texts, new_tokens)
        return _Run(streams, Metrics.of(server.url), _until_idle(server.url))


def _pressure_rows(ample: Sequence[Stream], scarce: Sequence[Stream], metrics: Metrics) -> list[Row]:
    num_same = sum(a.text == b.text for a, b in zip(ample, scarce, strict=True))
    wait, ample_wait = (max(s.longest_wait_s for s in streams) for streams in (scarce, ample))
    took, ample_took = makespan_s(scarce), makespan_s(ample)
    return [
        Row(
            "answers that are the same as with ample memory",
            f"{num_same} of {len(scarce)}",
            ratio=num_same / len(scarce),
            target=Target(1),
        ),
        Row("preemptions", f"{metrics.total('puna_preemptions_total'):.0f}"),
        Row("all done after", f"{seconds(took)}, with ample memory {seconds(ample_took)}"),
        Row("longest wait of anyone for text", f"{seconds(wait)}, with ample memory {seconds(ample_wait)}"),
    ]


def _idle_row(ample: _Run, scarce: _Run) -> Row:
    figure = f"KV memory when all is done; PUNA_KV_IDLE={_IDLE_S}s"
    return Row(figure, f"{scarce.memory}; with ample memory {ample.memory}")


def _until_idle(url: str) -> float | None:
    """Seconds until no KV memory is committed; None: some stays."""
    start = time.perf_counter()
    while (waited := time.perf_counter() - start) < _PATIENCE_S:
        if Metrics.of(url).total("puna_kv_committed_bytes") == 0:
            return waited
        time.sleep(0.25)
    return None
