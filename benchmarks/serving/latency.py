"""Eight streams are running when a long prompt arrives: how long do they wait for their next tokens?"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

from benchmarks.figures import Row, Target, p50_p95, percentile, seconds
from benchmarks.scenario import Finding, Findings, Setup
from benchmarks.servers.clients import Client, LlamaCppClient, PunaClient, Stream
from benchmarks.servers.prompts import Prompts
from benchmarks.servers.servers import puna_server
from benchmarks.servers.watching import wait_until
from benchmarks.weights.files import bench_file

_NUM_STREAMS = 8
_LONG_TOKENS = 4000
_CONTEXT_TOKENS = 24 * 1024  # of all slots together
_PATIENCE_S = 120
_PLAIN = {"draft_num_predict": 0}  # without drafts every piece of text is one token
_BATCHES = {
    "default batches": [],
    "batches of 64, for latency": ["--batch-size", "64", "--ubatch-size", "64"],
}
"""llama.cpp computes a whole batch of prompt tokens between two tokens of a stream."""


@dataclass(frozen=True)
class Waits:
    """Seconds between the tokens of all streams, before and while the long prompt was computed."""

    before: list[float]
    during: list[float]
    first_token_s: float
    """Of the long prompt."""

    @property
    def ratio(self) -> float:
        return percentile(self.during, 95) / percentile(self.before, 95)


def measure(setup: Setup) -> Findings:
    file = bench_file("Q4_0")
    prompts = Prompts(file.path)
    window_s = 1.0 if setup.quick else 3.0
    batches = dict(list(_BATCHES.items())[:1]) if setup.quick else _BATCHES
    with puna_server(file, setup.threads) as server:
        puna = PunaClient(server.url, file.model)
        puna.stream(prompts.take(32), 4)
        for label, options in batches.items():
            slots = (file, setup.threads, _NUM_STREAMS + 1, "default")
            options = ["--kv-unified", *options]
            with setup.peer.server(*slots, context_tokens=_CONTEXT_TOKENS, options=options) as other:
                llamacpp = LlamaCppClient(other.url)
                llamacpp.stream(prompts.take(32), 4)
                long_prompt = prompts.take(_LONG_TOKENS)
                ours, theirs = (_waits(c, prompts, long_prompt, window_s) for c in (puna, llamacpp))
            title = f"{_NUM_STREAMS} streams and a prompt of {_LONG_TOKENS} tokens, {file.title}; {label}"
            yield from (Finding(title, row) for row in _rows(ours, theirs))


def _rows(ours: Waits, theirs: Waits) -> Iterator[Row]:
    def both(figure: str, of: Callable[[Waits], str]) -> Row:
        return Row(figure, of(ours), of(theirs))

    yield both("between two tokens before, p50 / p95", lambda waits: p50_p95(waits.before))
    yield both("between two tokens meanwhile, p50 / p95", lambda waits: p50_p95(waits.during))
    yield both("longest wait meanwhile", lambda waits: seconds(max(waits.during)))
    yield both("first token of the long prompt", lambda waits: seconds(waits.first_token_s))
    yield Row(
        "p95 meanwhile / before",
        f"{ours.ratio:.2f}",
        f"{theirs.ratio:.2f}",
        ours.ratio,
        Target(2.5, is_least=False),
    )


def _waits(client: Client, prompts: Prompts, long_prompt: str, window_s: float) -> Waits:
    with _running(client, prompts) as streams:
        time.sleep(window_s)
        long = client.stream(long_prompt, 4)
        arrived = long.sent + long.first_token_s
        wait_until(
            lambda: all(s.usage or s.arrivals[-1:] > [arrived] for s in list(streams)),
            _PATIENCE_S,
            "the streams stand still",
        )
    gaps = [gap for stream in streams for gap in stream.gaps()]
    return Waits(
        before=[end - begin for begin, end in gaps if long.sent - window_s <= begin and end <= long.sent],
        during=[end - begin for begin, end in gaps if end > long.sent and begin < arrived],
        first_token_s=long.first_token_s,
    )


@contextmanager
def _running(client: Client, prompts: Prompts) -> Iterator[Sequence[Stream]]:
    """The answers of _NUM_STREAMS clients, each asking for one after the other; entered once all stream."""
    streams: list[Stream] = []
    done = threading.Event()
    texts = [[prompts.take(32) for _ in range(20)] for _ in range(_NUM_STREAMS)]

    def ask(mine: list[str]) -> None:
        for text in mine:
            stream = Stream(time.perf_counter())
            streams.append(stream)
            if done.is_set():
                return
            client.stream(text, 1000, _PLAIN, stream)

    with ThreadPoolExecutor(_NUM_STREAMS) as pool:
        asking = [pool.submit(ask, mine) for mine in texts]
        try:
            wait_until(
                lambda: sum(len(s.arrivals) > 2 for s in list(streams)) >= _NUM_STREAMS,
                _PATIENCE_S,
                "the streams stand still",
            )
            yield streams
        finally:
            done.set()
            for stream in streams:
                stream.cancelled = True
        for future in asking:
            future.result()
