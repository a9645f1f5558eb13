"""A model that has a million cached blocks: what they take, and who waits when they go."""

from __future__ import annotations

import gc
import os
import tempfile
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from benchmarks.growth.bench_engine import BenchEngine, blocks_for, call_ms, prompt_of
from benchmarks.overhead.comparing import Figure
from puna.engine import EngineSettings

_NUM_BLOCKS = 1_000_000
_PROMPT = 200_000
_DISK_BYTES = 16 << 20
"""Written are as many blocks as fit there."""
_STALL_MS = 20
# The files of a million blocks would take minutes. Earlier builds write none while they compute.
_NO_WRITE_BEHIND = {"write_behind": False} if hasattr(EngineSettings, "write_behind") else {}

Work = Callable[[], None]


class _Threads:
    """File threads that work when they are told to, in this one."""

    def __init__(self) -> None:
        self._jobs: deque[tuple[Work, Work]] = deque()

    def start(self, kind: str, work: Work, done: Work, num_threads: int = 1) -> None:  # noqa: ARG002
        self.look(work, done)

    def look(self, work: Work, done: Work, num_threads: int = 1) -> None:  # noqa: ARG002
        """Of earlier builds, as the next two."""
        self._jobs.append((work, done))

    read = write = look

    def run(self) -> list[float]:
        """How long the engine's part of all jobs takes, each in milliseconds."""
        stalls = []
        while self._jobs:
            work, done = self._jobs.popleft()
            work()
            stalls.append(call_ms(done))
        return stalls


def cached_blocks() -> list[tuple[Figure, list[float]]]:
    with tempfile.TemporaryDirectory(prefix="puna-bench-") as directory:
        threads = _Threads()
        engine = BenchEngine(
            _NUM_BLOCKS + 1000,
            prefill_tokens=1 << 16,
            kv_dir=directory,
            kv_disk_bytes=_DISK_BYTES,
            **_NO_WRITE_BEHIND,
        )
        engine.core.prefixes.use_threads(threads)
        heap_bytes = _fill(engine, threads)
        collected = [_collect_ms() for _ in range(3)]
        stalls = _put_away(engine, threads)
    return [
        (Figure("memory of a cached block, beside its content", "bytes", 0), [heap_bytes]),
        (Figure("garbage collection at 1M cached blocks", "ms", 1, _STALL_MS), collected),
        (Figure("longest call while 1M cached blocks go to disk", "ms", 1, _STALL_MS), [max(stalls)]),
        (Figure("all of these calls", "ms", 1), [sum(stalls)]),
    ]


def _fill(engine: BenchEngine, threads: _Threads) -> float:
    before = _resident_bytes()
    for index in range(_NUM_BLOCKS // blocks_for(_PROMPT)):
        engine.submit(str(index), prompt_of(_PROMPT, index), max_tokens=1)
        threads.run()
        engine.run_until_done(str(index))
    stats = engine.core.stats().models[0]
    num_cached = stats.cached_kv_bytes // stats.block_bytes
    assert num_cached > 0.9 * _NUM_BLOCKS, f"{num_cached} blocks are cached"
    gc.collect()
    return (_resident_bytes() - before) / num_cached


def _put_away(engine: BenchEngine, threads: _Threads) -> list[float]:
    """How long each call of the engine's thread takes, from an idle model until its memory is gone."""
    stalls = []
    engine.clock.now_s += 10
    deadline_s = time.monotonic() + 120
    while engine.core.stats().models[0].committed_kv_bytes and time.monotonic() < deadline_s:
        stalls.append(call_ms(engine.core.prefixes.tend))
        stalls += threads.run()
        stalls.append(call_ms(engine.core.trim))
    assert not engine.core.stats().models[0].committed_kv_bytes, "the memory is not given back"
    return stalls


def _collect_ms() -> float:
    start_ns = time.thread_time_ns()
    gc.collect()
    return (time.thread_time_ns() - start_ns) / 1e6


def _resident_bytes() -> int:
    num_pages = int(Path("/proc/self/statm").read_text().split()[1])
    return num_pages * os.sysconf("SC_PAGE_SIZE")
