"""Embeddings of many short texts, and of a few long ones, each lot in one request."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

import httpx

from benchmarks.figures import Row, rate
from benchmarks.scenario import Finding, Findings, Setup
from benchmarks.servers.peer import SETTINGS
from benchmarks.servers.prompts import Prompts
from benchmarks.servers.servers import puna_server
from benchmarks.weights.files import BenchFile, bench_file

_SLOTS = 16
_SLOT_TOKENS = 512
_OPTIONS = ("--embeddings", "--pooling", "last", "--batch-size", "2048")
_LOTS = {"short": (256, 12), "long": (16, 400)}
"""Texts, and tokens of each."""

Embed = Callable[[list[str]], int]
"""How many tokens the texts had."""


def measure(setup: Setup) -> Findings:
    file = bench_file("Q4_0")
    prompts = Prompts(file.path)
    for kind, (num_texts, num_tokens) in _LOTS.items():
        count = num_texts // 8 if setup.quick else num_texts
        lots = [[prompts.take(num_tokens) for _ in range(count)] for _ in range(1 if setup.quick else 3)]
        ours = _ours(setup, file, lots)
        settings = list(SETTINGS)[:1] if setup.quick else SETTINGS
        by_setting = {setting: _theirs(setup, file, lots, setting) for setting in settings}
        best = max(by_setting, key=by_setting.__getitem__)
        row = Row(
            f"{count} {kind} texts of {num_tokens} tokens in one request; llama.cpp: {_SLOTS} slots, {best}",
            rate(ours),
            rate(by_setting[best]),
            ours / by_setting[best],
        )
        yield Finding(f"Embeddings, {file.title}", row)


def _ours(setup: Setup, file: BenchFile, lots: list[list[str]]) -> float:
    with puna_server(file, setup.threads) as server:

        def embed(texts: list[str]) -> int:
            body = {"model": file.model, "input": texts, "cache_prompt": False}
            tokens: int = _posted(server.http, "/api/embed", body)["prompt_eval_count"]
            return tokens

        return _speed(embed, lots)


def _theirs(setup: Setup, file: BenchFile, lots: list[list[str]], setting: str) -> float:
    slots = (file, setup.threads, _SLOTS, setting)
    with setup.peer.server(*slots, context_tokens=_SLOTS * _SLOT_TOKENS, options=_OPTIONS) as server:

        def embed(texts: list[str]) -> int:
            usage: dict[str, int] = _posted(server.http, "/v1/embeddings", {"input": texts})["usage"]
            return usage["prompt_tokens"]

        return _speed(embed, lots)


def _posted(http: httpx.Client, path: str, body: dict[str, object]) -> dict[str, object]:
    reply: dict[str, object] = http.post(path, json=body).raise_for_status().json()
    return reply


def _speed(embed: Embed, lots: list[list[str]]) -> float:
    """Tokens per second."""
    embed(["Warming up"])

    def speed(texts: list[str]) -> float:
        start = time.perf_counter()
        return embed(texts) / (time.perf_counter() - start)

    return median(map(speed, lots))
