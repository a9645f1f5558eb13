"""Answers that repeat their prompt, and free text: with drafts and without."""

from __future__ import annotations

from itertools import takewhile
from statistics import median

from benchmarks.figures import Row, Target, rate
from benchmarks.scenario import Finding, Findings, Setup
from benchmarks.servers.clients import Client, LlamaCppClient, PunaClient, Stream
from benchmarks.servers.servers import puna_server
from benchmarks.serving.tasks import FREE, REPETITIVE, Task
from benchmarks.weights.files import bench_file

_KINDS = [(REPETITIVE, 4, Target(1.5)), (FREE, 8, Target(0.97))]
"""Tasks, rounds (what should not differ must be measured well), what is wanted."""


def measure(setup: Setup) -> Findings:
    file = bench_file("Q4_1")  # as published: of these files the one that copies most faithfully
    title = f"Decoding with drafts / without, {file.title}"
    with (
        puna_server(file, setup.threads) as server,
        setup.peer.server(file, setup.threads, 1, "default") as other,
    ):
        puna, llamacpp = PunaClient(server.url, file.model), LlamaCppClient(other.url)
        for client in (puna, llamacpp):
            client.stream(REPETITIVE[0].prompt, 4)
        for tasks, rounds, target in _KINDS:
            for task in tasks:
                yield Finding(title, _compare(task, puna, llamacpp, 1 if setup.quick else rounds, target))


def _compare(task: Task, puna: Client, llamacpp: Client, rounds: int, target: Target) -> Row:
    """Raises RuntimeError if drafts change an answer. llama.cpp runs as it does by default: without."""
    drafted: list[Stream] = []
    plain: list[Stream] = []
    turns = [(drafted, task.options), (plain, {**task.options, "draft_num_predict": 0})]
    for _ in range(rounds):
        for streams, options in turns:
            streams.append(puna.stream(task.prompt, task.num_tokens, options))
        turns.reverse()
    texts = {stream.text for stream in drafted + plain}
    if len(texts) > 1:
        raise RuntimeError(f"{task.title}: drafts change the answer")
    peer = [llamacpp.stream(task.prompt, task.num_tokens, task.options) for _ in range(min(rounds, 2))]
    ratio = median(a / b for a, b in zip(_rates(drafted), _rates(plain), strict=True))
    shown = f"{rate(median(_rates(drafted)))}, without {rate(median(_rates(plain)))}"
    return Row(_figure(task, texts.pop()), shown, rate(median(_rates(peer))), ratio, target)


def _figure(task: Task, answer: str) -> str:
    if not task.repeated:
        return f"free text: {task.title}"
    pairs = list(zip(answer, task.repeated, strict=False))
    num_right = len(list(takewhile(lambda pair: pair[0] == pair[1], pairs)))
    return f"{task.title} ({num_right / len(pairs):.0%} as it should be)"


def _rates(streams: list[Stream]) -> list[float]:
    """Tokens per second, as the server reports."""
    return [stream.usage.rate for stream in streams if stream.usage is not None]
