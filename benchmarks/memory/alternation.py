"""Two models are resident, and the next token is always wanted of the other one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from benchmarks.figures import Row, Target, p50_p95, percentile, seconds
from benchmarks.scenario import Finding, Findings, Setup
from benchmarks.servers.clients import Client, LlamaCppClient, PunaClient, Stream, stream_each
from benchmarks.servers.prompts import Prompts
from benchmarks.servers.servers import puna_server
from benchmarks.weights.files import BenchFile, bench_file

_TITLE = "two resident models in turn, a token each"
_PROMPT_TOKENS = 64
_STREAM_TOKENS = 96
_TARGET = Target(0.010, is_least=False, show=seconds)
_PLAIN = {"draft_num_predict": 0}  # without drafts every piece of text is one token


@dataclass
class Latencies:
    """Seconds to a token, of each of the two models."""

    alone: tuple[list[float], list[float]] = field(default_factory=lambda: ([], []))
    in_turn: tuple[list[float], list[float]] = field(default_factory=lambda: ([], []))

    @property
    def added_s(self) -> float:
        """At the 95th percentile, of the model to which more is added."""
        pairs = zip(self.alone, self.in_turn, strict=True)
        return max(percentile(b, 95) - percentile(a, 95) for a, b in pairs)

    @property
    def text(self) -> str:
        alone, in_turn = (p50_p95([*pair[0], *pair[1]]) for pair in (self.alone, self.in_turn))
        return f"{in_turn}, alone {alone}"


def measure(setup: Setup) -> Findings:
    files = [bench_file("Q4_0"), bench_file("Q4_1")]
    text = Prompts(files[0].path).take(_PROMPT_TOKENS)
    blocks, per_block = (2, 10) if setup.quick else (8, 50)
    with _puna(setup, files, text) as clients:
        requests, streams = _by_request(clients, text, blocks, per_block), _by_stream(clients, text, blocks)
    with _llamacpp(setup, files, text, setup.threads) as clients:
        peer_requests = _by_request(clients, text, blocks, per_block)
    # Threads of two servers on one core would wait for each other.
    half = max(setup.threads // 2, 1)
    with _llamacpp(setup, files, text, half) as clients:
        peer_streams = _by_stream(clients, text, blocks)
    for what, ours, theirs in (
        ("requests, one after the other", requests, peer_requests),
        (f"streams, both at once (llama.cpp: threads {half} + {half})", streams, peer_streams),
    ):
        yield Finding(_TITLE, Row(f"{what}: to a token, p50 / p95", ours.text, theirs.text))
        yield Finding(_TITLE, _added_row(what, ours, theirs))


def _added_row(what: str, ours: Latencies, theirs: Latencies) -> Row:
    figure, added = f"{what}: added to the p95 of one model alone", (ours.added_s, theirs.added_s)
    return Row(figure, *map(seconds, added), target=_TARGET, value=ours.added_s)


@contextmanager
def _puna(setup: Setup, files: Sequence[BenchFile], text: str) -> Iterator[Sequence[Client]]:
    with puna_server(files[0], setup.threads) as server:
        yield _used([PunaClient(server.url, file.model) for file in files], text)


@contextmanager
def _llamacpp(
    setup: Setup, files: Sequence[BenchFile], text: str, threads: int
) -> Iterator[Sequence[Client]]:
    a, b = (setup.peer.server(file, threads, 1, "default") for file in files)
    with a as first, b as second:
        yield _used([LlamaCppClient(first.url), LlamaCppClient(second.url)], text)


def _used(clients: Sequence[Client], text: str) -> Sequence[Client]:
    for client in clients:
        client.stream(text, 4, _PLAIN)
    return clients


def _by_request(clients: Sequence[Client], text: str, blocks: int, per_block: int) -> Latencies:
    """Each request is for one token; the prompt is cached but for its last."""
    latencies = Latencies()
    for _ in range(blocks):
        for client, alone in zip(clients, latencies.alone, strict=True):
            alone += [_first_token_s(client, text) for _ in range(per_block)]
        for _ in range(per_block):
            for client, in_turn in zip(clients, latencies.in_turn, strict=True):
                in_turn.append(_first_token_s(client, text))
    return latencies


def _first_token_s(client: Client, text: str) -> float:
    return client.stream(text, 1, _PLAIN).first_token_s


def _by_stream(clients: Sequence[Client], text: str, blocks: int) -> Latencies:
    """Each answer is a stream of tokens; those of both models come at the same time."""
    latencies = Latencies()
    for _ in range(blocks):
        for client, alone in zip(clients, latencies.alone, strict=True):
            alone += _gaps([client.stream(text, _STREAM_TOKENS, _PLAIN)])[0]
        both = stream_each([(client, text) for client in clients], _STREAM_TOKENS, _PLAIN)
        for in_turn, gaps in zip(latencies.in_turn, _gaps(both), strict=True):
            in_turn += gaps
    return latencies


def _gaps(streams: Sequence[Stream]) -> list[list[float]]:
    """Of each stream, while all of them come."""
    begin, end = max(s.arrivals[0] for s in streams), min(s.arrivals[-1] for s in streams)
    return [[b - a for a, b in s.gaps() if begin <= a and b <= end] for s in streams]
