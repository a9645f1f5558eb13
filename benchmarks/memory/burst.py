"""Everybody asks one model, and then everybody another one: how soon does the memory follow?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from benchmarks.clients import LlamaCppClient, PunaClient, Stream, makespan_s, stream_all
from benchmarks.figures import Row, Target, mebibytes, percent, seconds
from benchmarks.files import BenchFile, bench_file
from benchmarks.memory.daemon import Daemon, KvState
from benchmarks.memory.processes import memory_of
from benchmarks.memory.static import kv_bytes_per_token
from benchmarks.prompts import Prompts
from benchmarks.scenario import Finding, Findings, Setup
from benchmarks.servers import puna_server
from benchmarks.watching import Sample, watching

# The pool is small, because a model holds only what it has computed, and that takes time of its own.
_POOL_TOKENS = 1440
_NUM_REQUESTS = 24
_PROMPT_TOKENS, _NEW_TOKENS = 96, 32
_SHARE = 0.9
_LOOK_EVERY_S = 0.01
_HALF_TOKENS = _POOL_TOKENS // 2 // 256 * 256 + 256  # llama.cpp's contexts are multiples; it gets the larger


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


def measure(setup: Setup) -> Findings:
    files = [bench_file("Q4_0"), bench_file("Q4_1")]
    prompts = Prompts(files[0].path)
    rounds = 1 if setup.quick else 5
    courses = [_puna(setup, files, _texts(prompts)) for _ in range(rounds)]
    theirs = _llamacpp(setup, files, _texts(prompts))
    limit = courses[0].limit
    title = f"a burst of {_NUM_REQUESTS} requests moves from model A to model B, a pool of {mebibytes(limit)}"
    for row in _rows(courses, theirs, *(file.model for file in files)):
        yield Finding(title, row)


def _texts(prompts: Prompts) -> list[list[str]]:
    return [[prompts.take(_PROMPT_TOKENS) for _ in range(_NUM_REQUESTS)] for _ in range(2)]


def _puna(setup: Setup, files: Sequence[BenchFile], texts: Sequence[Sequence[str]]) -> Course:
    limit = _POOL_TOKENS * kv_bytes_per_token(files[0])
    environment = {"OLLAMA_KVCACHED_MEMORY_GB": f"{limit}B"}
    with puna_server(files[0], setup.threads, environment) as server:
        daemon, clients = Daemon(server.url), [PunaClient(server.url, file.model) for file in files]
        for client in clients:
            daemon.load(client.model)
        with watching(daemon.kv, _LOOK_EVERY_S) as looks:
            first, second = (
                stream_all(client, of, _NEW_TOKENS) for client, of in zip(clients, texts, strict=True)
            )
        return Course(first, second, looks, limit)


def _llamacpp(setup: Setup, files: Sequence[BenchFile], texts: Sequence[Sequence[str]]) -> Theirs:
    """A server for each model, with half of the pool."""
    num_slots = _HALF_TOKENS // (_PROMPT_TOKENS + _NEW_TOKENS)
    a, b = (
        setup.peer.server(
            file, setup.threads, num_slots, "default", context_tokens=_HALF_TOKENS, options=["--kv-unified"]
        )
        for file in files
    )
    with a as first, b as second:
        stream_all(LlamaCppClient(first.url), texts[0], _NEW_TOKENS)
        before = memory_of(first.pid).pss
        streams = stream_all(LlamaCppClient(second.url), texts[1], _NEW_TOKENS)
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
    answered = sum(len(course.first) + len(course.second) for course in courses)
    wanted = 2 * _NUM_REQUESTS * len(courses)
    yield Row("requests answered", f"{answered} of {wanted}", target=Target(wanted), value=answered)
    took, their_took = makespan_s(courses[0].second), makespan_s(theirs.second)
    yield Row("B's burst done after", seconds(took), seconds(their_took), their_took / took)


def _before(course: Course, model: str) -> str:
    begin = min(stream.sent for stream in course.second)
    return mebibytes([look.value.committed_of(model) for look in course.looks if look.at < begin][-1])


def _after(course: Course, model: str) -> str:
    return mebibytes(course.looks[-1].value.committed_of(model))
