"""A model had much to do, and then nothing for five seconds: what does it still hold?"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

from benchmarks.figures import Row, Target, mebibytes, percent
from benchmarks.memory.daemon import Daemon
from benchmarks.memory.processes import Memory, family, memory_of
from benchmarks.memory.static import static_kv_bytes
from benchmarks.scenario import Finding, Findings, Setup
from benchmarks.servers.clients import Client, LlamaCppClient, PunaClient, stream_all
from benchmarks.servers.prompts import Prompts
from benchmarks.servers.servers import puna_server
from benchmarks.weights.files import BenchFile, bench_file

_IDLE_S = 5.0
_NUM_SLOTS = 5
_NEW_TOKENS = 32
_SLOT_TOKENS = 4352  # for a long prompt and its answer, in whichever slot it lands


class _Course(NamedTuple):
    """Memory of the processes."""

    before: Memory
    """With the model loaded, once used, and idle for _IDLE_S."""
    busy: Memory
    """When the last answer was complete."""
    idle: Memory
    """_IDLE_S later."""

    @property
    def text(self) -> str:
        return " → ".join(mebibytes(memory.pss) for memory in self)

    @property
    def growth(self) -> float:
        return self.idle.pss / self.before.pss - 1


class _Puna(NamedTuple):
    unused: Memory
    """Before the model was loaded."""
    course: _Course
    busy_kv: int
    """Bytes committed when the last answer was complete."""
    idle_kv: int


def measure(setup: Setup) -> Findings:
    file = bench_file("Q4_0")
    prompts = Prompts(file.path)
    long, short = (1000, 250) if setup.quick else (4000, 1000)
    texts = [prompts.take(tokens) for tokens in [long] + [short] * (_NUM_SLOTS - 1)]
    ours = _puna(setup, file, prompts, texts)
    theirs = _llamacpp(setup, file, prompts, texts)
    title = f"idle model, {_IDLE_S:g} s after {_NUM_SLOTS} requests at once, {file.title}"
    for row in _rows(ours, theirs, static_kv_bytes(file, _SLOT_TOKENS, _NUM_SLOTS)):
        yield Finding(title, row)


def _puna(setup: Setup, file: BenchFile, prompts: Prompts, texts: Sequence[str]) -> _Puna:
    with puna_server(file, setup.threads) as server:
        unused, kv = memory_of(*family(server.pid)), Daemon(server.url).kv
        client = PunaClient(server.url, file.model)
        before = _used_once(client, prompts, server.pid)
        stream_all(client, texts, _NEW_TOKENS)
        busy, busy_kv = memory_of(*family(server.pid)), kv().committed
        time.sleep(_IDLE_S)
        return _Puna(unused, _Course(before, busy, memory_of(*family(server.pid))), busy_kv, kv().committed)


def _llamacpp(setup: Setup, file: BenchFile, prompts: Prompts, texts: Sequence[str]) -> _Course:
    slots = (file, setup.threads, _NUM_SLOTS, "default")
    with setup.peer.server(*slots, context_tokens=_NUM_SLOTS * _SLOT_TOKENS) as server:
        client = LlamaCppClient(server.url)
        before = _used_once(client, prompts, server.pid)
        stream_all(client, texts, _NEW_TOKENS)
        busy = memory_of(server.pid)
        time.sleep(_IDLE_S)
        return _Course(before, busy, memory_of(server.pid))


def _used_once(client: Client, prompts: Prompts, pid: int) -> Memory:
    client.stream(prompts.take(32), _NEW_TOKENS)
    time.sleep(_IDLE_S)
    return memory_of(*family(pid))


def _rows(ours: _Puna, theirs: _Course, static_bytes: int) -> list[Row]:
    course = ours.course
    return [
        Row(
            f"KV memory: after the last answer → {_IDLE_S:g} s later",
            f"{mebibytes(ours.busy_kv)} → {mebibytes(ours.idle_kv)}",
            f"{mebibytes(static_bytes)}, always",
            target=Target(0, is_least=False, show=mebibytes),
            value=ours.idle_kv,
        ),
        Row(
            "PSS of all processes: loaded, once used and idle → after the last answer → idle again",
            course.text,
            theirs.text,
            theirs.idle.pss / course.idle.pss,
        ),
        Row(
            "idle again / before",
            percent(1 + course.growth),
            percent(1 + theirs.growth),
            target=Target(1.10, is_least=False, show=percent),
            value=1 + course.growth,
        ),
        Row("PSS before the model was loaded", mebibytes(ours.unused.pss)),
    ]
