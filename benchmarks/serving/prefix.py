"""Sixteen requests that begin alike: one after the other, and all at once."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from statistics import median

from benchmarks.figures import Row, Target, seconds
from benchmarks.scenario import Finding, Findings, Setup
from benchmarks.servers.clients import (
    Client,
    LlamaCppClient,
    PunaClient,
    Stream,
    makespan_s,
    stream_all,
)
from benchmarks.servers.metrics import Metrics
from benchmarks.servers.peer import SETTINGS
from benchmarks.servers.prompts import Prompts
from benchmarks.servers.servers import puna_server
from benchmarks.weights.files import BenchFile, bench_file

NUM_REQUESTS = 16
_NEW_TOKENS = 32
_CONTEXT_TOKENS = 24 * 1024  # of all slots together
_CACHES = {"one unified cache": ["--kv-unified"], "a cache for each": []}
"""How llama.cpp can divide its cache among slots."""


def measure(setup: Setup) -> Findings:
    for name in ("Q4_0",) if setup.quick else ("Q4_0", "Q4_1"):
        yield from _measure_file(setup, bench_file(name))


def _measure_file(setup: Setup, file: BenchFile) -> Findings:
    prefix_tokens = 512 if setup.quick else 1024
    rounds = 1 if setup.quick else 3
    prompts = Prompts(file.path)
    alone = [_alike(prompts, prefix_tokens) for _ in range(rounds)]
    together = [_alike(prompts, prefix_tokens) for _ in range(rounds)]
    setting = _best_setting(setup, file, prompts)
    title = f"{NUM_REQUESTS} requests with one prefix of {prefix_tokens} tokens, {file.title}"
    with puna_server(file, setup.threads) as server:
        puna = PunaClient(server.url, file.model)
        _warm_up(puna, prompts)
        ours = [_one_by_one(puna, texts) for texts in alone]
        before = Metrics.of(puna.url)
        at_once = [stream_all(puna, texts, _NEW_TOKENS) for texts in together]
        computed, wanted = (
            _computed(before, Metrics.of(puna.url)),
            rounds * _needed(at_once[0], prefix_tokens),
        )
        for cache, options in _CACHES.items():
            is_first = cache == next(iter(_CACHES))
            slots = (file, setup.threads, NUM_REQUESTS, setting)
            with setup.peer.server(*slots, context_tokens=_CONTEXT_TOKENS, options=options) as other:
                llamacpp = LlamaCppClient(other.url)
                _warm_up(llamacpp, prompts)
                if is_first:
                    theirs = _one_by_one(llamacpp, alone[0])
                    yield from (Finding(title, row) for row in _alone_rows(ours, theirs))
                at_once.append(stream_all(puna, _alike(prompts, prefix_tokens), _NEW_TOKENS))
                crowd = stream_all(llamacpp, together[0], _NEW_TOKENS)
            label = f"llama.cpp with {NUM_REQUESTS} slots, {cache}, {setting}"
            yield Finding(
                title, _together_row(label, at_once, crowd, has_target=is_first and not setup.quick)
            )
            if is_first:
                yield Finding(title, _computed_row(computed, wanted, crowd))
            if setup.quick or file.title != "SmolLM2-135M Q4_0":
                return  # each further crowd takes llama.cpp a minute


def _alike(prompts: Prompts, prefix_tokens: int) -> list[str]:
    """NUM_REQUESTS prompts that begin alike and go on differently, for 16 to 31 tokens."""
    prefix = prompts.take(prefix_tokens)
    return [f"{prefix}\n\n{prompts.take(14 + i)}" for i in range(NUM_REQUESTS)]


def _one_by_one(client: Client, texts: Sequence[str]) -> list[Stream]:
    return [client.stream(text, _NEW_TOKENS) for text in texts]


def _alone_rows(ours: Sequence[Sequence[Stream]], theirs: Sequence[Stream]) -> list[Row]:
    """ours: of several rounds."""
    first, later = (median(map(figure, ours)) for figure in (_first_s, _later_s))
    ratio = median(_later_s(streams) / _first_s(streams) for streams in ours)
    worst = median(max(s.first_token_s for s in streams[1:]) for streams in ours)
    peer_worst = max(s.first_token_s for s in theirs[1:])
    return [
        Row("one by one: first token of the first", seconds(first), seconds(_first_s(theirs))),
        Row("first token of the later ones, median", seconds(later), seconds(_later_s(theirs))),
        Row("first token of the later ones, slowest", seconds(worst), seconds(peer_worst)),
        Row(
            "later / first",
            f"1/{1 / ratio:.1f}",
            f"1/{_first_s(theirs) / _later_s(theirs):.1f}",
            ratio,
            Target(1 / 15, is_least=False),
        ),
    ]


def _first_s(streams: Sequence[Stream]) -> float:
    return streams[0].first_token_s


def _later_s(streams: Sequence[Stream]) -> float:
    return median(s.first_token_s for s in streams[1:])


def _together_row(
    label: str, ours: Sequence[Sequence[Stream]], theirs: Sequence[Stream], *, has_target: bool
) -> Row:
    mine, peer = median(map(makespan_s, ours)), makespan_s(theirs)
    target = Target(15) if has_target else None
    return Row(
        f"all at once, until the last is done; {label}", seconds(mine), seconds(peer), peer / mine, target
    )


def _computed_row(computed: float, wanted: float, theirs: Sequence[Stream]) -> Row:
    usages = [s.usage for s in theirs if s.usage is not None]
    peer = sum(u.prompt_tokens - (u.cached_tokens or 0) for u in usages)
    figure = "prompt tokens computed / (one prefix + all tails)"
    return Row(
        figure, f"{computed:.0f} / {wanted:.0f}", f"{peer}", computed / wanted, Target(1.05, is_least=False)
    )


def _computed(before: Metrics, after: Metrics) -> float:
    """Prompt tokens that went through puna's model between two looks at the metrics."""
    first, last = (m.total("puna_computed_tokens_total", phase="prefill") for m in (before, after))
    return last - first


def _needed(streams: Sequence[Stream], prefix_tokens: int) -> int:
    return sum(s.usage.prompt_tokens for s in streams if s.usage) - (len(streams) - 1) * prefix_tokens


def _best_setting(setup: Setup, file: BenchFile, prompts: Prompts) -> str:
    """The one with which llama.cpp computes short prompts of all slots fastest."""
    if setup.quick:
        return "default"
    took: dict[str, float] = {}
    for setting in SETTINGS:
        with setup.peer.server(
            file,
            setup.threads,
            NUM_REQUESTS,
            setting,
            context_tokens=_CONTEXT_TOKENS,
            options=["--kv-unified"],
        ) as server:
            client = LlamaCppClient(server.url)
            _warm_up(client, prompts)
            took[setting] = makespan_s(stream_all(client, _alike(prompts, 64), 4))
    text = ", ".join(f"{setting} {seconds(value)}" for setting, value in took.items())
    print(f"{file.title}: llama.cpp's settings: {text}", file=sys.stderr, flush=True)
    return min(took, key=lambda setting: took[setting])


def _warm_up(client: Client, prompts: Prompts) -> None:
    """The first pass reads the file from disk and, in llama.cpp, decides on buffers."""
    client.stream(prompts.take(32), 4)
