"""Everybody asks one model, and then everybody another one: how soon does the memory follow?"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from statistics import median
from typing import NamedTuple

from benchmarks.figures import Row, Target, mebibytes, percent, seconds
from benchmarks.memory.daemon import Daemon, KvState
from benchmarks.memory.processes import memory_of
from benchmarks.memory.static import kv_bytes_per_token
from benchmarks.scenario import Finding, Findings, Setup
from benchmarks.servers.clients import LlamaCppClient, PunaClient, Stream, makespan_s, stream_all
from benchmarks.servers.prompts import Prompts
from benchmarks.servers.servers import puna_server
from benchmarks.servers.watching import Sample, watching
from benchmarks.weights.files import BenchFile, bench_file

_POOL_S = 0.25
"""Pool, in seconds of computing, alone. A model has KV only of what it has computed, beside streams that want
their tokens, and it is memory that is tested here.
"""
_PROMPT_TOKENS, _NEW_TOKENS = 96, 16
_CROWD = 1.5
"""Prompt tokens of a burst, as a multiple of those that the pool has room for."""
_SHARE = 0.9
_LOOK_EVERY_S = 0.01
_CONTEXT_STEP = 256  # llama.cpp's contexts are multiples


class Course(NamedTuple):
    first: list[Stream]
    second: list[Stream]
    looks: list[Sample[KvState]]
    limit: int

    def share(self, model: str, state: KvState) -> float:
        return state.committed_of(model) / self.limit

    def reached_s(self, model: str) -> float:
        """From the second burst's first request until the model had _SHARE of the pool.

        Raises RuntimeError if it never had.
        """
        begin = min(stream.sent for stream in self.second)
        for look in self.looks:
            if look.at >= begin and self.share(model, look.value) >= _SHARE:
                return look.at - begin
        raise RuntimeError(f"{model} never had {_SHARE:.0%} of the pool")

    def most(self, model: str) -> float:
        """Largest share of the pool."""
        return max(self.share(model, look.value) for look in self.looks)


class Theirs(NamedTuple):
    before: int
    """PSS of the first model's server when its burst was over."""
    after: int
    """When the second model's was over."""
    second: list[Stream]


class Plan(NamedTuple):
    """texts: of both bursts."""

    pool_tokens: int
    texts: list[list[str]]


def measure(setup: Setup) -> Findings:
    files = [bench_file("Q4_0"), bench_file("Q4_1")]
    prompts = Prompts(files[0].path)
    pool_tokens = _pool_tokens(setup, files[1], prompts)
    plans = [_plan(pool_tokens, prompts) for _ in range(1 if setup.quick else 5)]
    courses = [_puna(setup, files, plan) for plan in plans]
    theirs = _llamacpp(setup, files, plans[0])
    title = (
        f"a burst of {len(plans[0].texts[0])} requests moves from model A to model B, "
        f"a pool of {mebibytes(courses[0].limit)}: what B computes in {_POOL_S:g} s"
    )
    for row in _rows(courses, theirs, *(file.model for file in files)):
        yield Finding(title, row)


def _pool_tokens(setup: Setup, file: BenchFile, prompts: Prompts) -> int:
    with puna_server(file, setup.threads) as server:
        server.complete(prompts.take(512), 1)
        completions = [server.complete(prompts.take(512), 1) for _ in range(5)]
    return int(median(c.prompt_tokens / c.prompt_s for c in completions) * _POOL_S)


def _plan(pool_tokens: int, prompts: Prompts) -> Plan:
    num_requests = math.ceil(_CROWD * pool_tokens / _PROMPT_TOKENS)
    texts = [[prompts.take(_PROMPT_TOKENS) for _ in range(num_requests)] for _ in range(2)]
    return Plan(pool_tokens, texts)


def _puna(setup: Setup, files: Sequence[BenchFile], plan: Plan) -> Course:
    limit = plan.pool_tokens * kv_bytes_per_token(files[0])
    environment = {"OLLAMA_KVCACHED_MEMORY_GB": f"{limit}B"}
    with puna_server(files[0], setup.threads, environment) as server:
        daemon, clients = Daemon(server.url), [PunaClient(server.url, file.model) for file in files]
        for client in clients:
            daemon.load(client.model)
        with watching(daemon.kv, _LOOK_EVERY_S) as looks:
            first, second = (
                stream_all(client, texts, _NEW_TOKENS)
                for client, texts in zip(clients, plan.texts, strict=True)
            )
        return Course(first, second, looks, limit)


def _llamacpp(setup: Setup, files: Sequence[BenchFile], plan: Plan) -> Theirs:
    """A server for each model, with half of the pool."""
    context = math.ceil(plan.pool_tokens / 2 / _CONTEXT_STEP) * _CONTEXT_STEP
    num_slots = context // (_PROMPT_TOKENS + _NEW_TOKENS)
    a, b = (
        setup.peer.server(
            file, setup.threads, num_slots, "default", context_tokens=context, options=["--kv-unified"]
        )
        for file in files
    )
    with a as first, b as second:
        stream_all(LlamaCppClient(first.url), plan.texts[0], _NEW_TOKENS)
        before = memory_of(first.pid).pss
        streams = stream_all(LlamaCppClient(second.url), plan.texts[1], _NEW_TOKENS)
        return Theirs(before, memory_of(first.pid).pss, streams)


def _rows(courses: Sequence[Course], theirs: Theirs, first: str, second: str) -> Iterator[Row]:
    reached = sorted(course.reached_s(second) for course in courses)
    yield Row(
        f"B has {_SHARE:.0%} of the pool: after B's first request, slowest of {len(reached)} rounds",
        seconds(reached[-1]),
        "never: it has a half",
        target=Target(1, is_least=False, show=seconds),
        value=reached[-1],
    )
    most = [min(course.most(model) for course in courses) for model in (first, second)]
    yield Row(
        "most of the pool that A had / B had", f"{percent(most[0])} / {percent(most[1])}", "50.0% / 50.0%"
    )
    yield Row(
        "A's memory before → after B's burst; llama.cpp: its server's PSS",
        f"{_before(courses[0], first)} → {_after(courses[0], first)}",
        f"{mebibytes(theirs.before)} → {mebibytes(theirs.after)}",
    )
    streams = [stream for course in courses for stream in (*course.first, *course.second)]
    answered = sum(stream.usage is not None for stream in streams)
    yield Row(
        "requests answered", f"{answered} of {len(streams)}", target=Target(len(streams)), value=answered
    )
    took, their_took = makespan_s(courses[0].second), makespan_s(theirs.second)
    yield Row("B's burst done after", seconds(took), seconds(their_took), their_took / took)


def _before(course: Course, model: str) -> str:
    begin = min(stream.sent for stream in course.second)
    return mebibytes([look.value.committed_of(model) for look in course.looks if look.at < begin][-1])


def _after(course: Course, model: str) -> str:
    return mebibytes(course.looks[-1].value.committed_of(model))
