"""The pool costs nothing while idle, and ends cleanly: closed, collected, or in a forked child."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from puna._native import NativeError, ThreadPool, cpu_info, measure_dot_peak
from tests.executor.toy import Chunk, Runner
from tests.executor.transformer import build_transformer, random_tensors

pytestmark = pytest.mark.native


def num_threads() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


def worker_sleeps() -> dict[str, int]:
    """Thread name -> how often it has slept, once all of them do."""
    names = {task: (task / "comm").read_text().strip() for task in Path("/proc/self/task").iterdir()}
    workers = [task for task, name in names.items() if name.startswith("puna-worker")]
    while any("State:\tS" not in (task / "status").read_text() for task in workers):
        time.sleep(0.01)
    return {
        name: int(re.search(r"^voluntary_ctxt_switches:\s+(\d+)", (task / "status").read_text(), re.M)[1])
        for task, name in names.items()
        if name.startswith("puna-worker")
    }


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    return Runner(build_transformer(tmp_path, "auto", random_tensors("Q8_0")))


def test_threads_sleep_between_steps(runner: Runner) -> None:
    runner.run([Chunk([1, 2, 3], [0])])
    time.sleep(0.05)
    before = time.process_time()
    time.sleep(1)
    assert time.process_time() - before < 0.05


def test_threads_beyond_the_limit_sleep_on(runner: Runner) -> None:
    """Programs that share a pool may each use fewer threads than it has."""
    runner = Runner(runner.program, num_threads=6)
    runner.run([Chunk([1, 2, 3], [0])])
    workers = worker_sleeps()
    for _ in range(50):
        runner.run([Chunk([1, 2, 3], [0])], num_threads=3)
    ran = {name for name, sleeps in worker_sleeps().items() if sleeps != workers[name]}
    assert ran <= {"puna-worker-1", "puna-worker-2"}
    assert workers.keys() >= {f"puna-worker-{i}" for i in range(1, 6)}


@pytest.mark.parametrize("num_allowed", [1, 2])
def test_threads_that_move_are_not_bound(runner: Runner, num_allowed: int) -> None:
    """All of them are where the caller is, more of them than there are processors."""
    whole = os.sched_getaffinity(0)
    allowed = set(sorted(whole)[:num_allowed])
    runner = Runner(runner.program, num_threads=3)
    expected = runner.run([Chunk([1, 2, 3], [0])])
    tasks = [int(task.name) for task in Path("/proc/self/task").iterdir()]
    workers = [task for task in tasks if Path(f"/proc/self/task/{task}/comm").read_text()[:4] == "puna"]
    try:
        for task in (0, *workers):
            os.sched_setaffinity(task, {min(allowed)})
        for task in (0, *workers):
            os.sched_setaffinity(task, allowed)
        for _ in range(20):
            np.testing.assert_array_equal(runner.run([Chunk([1, 2, 3], [0])]), expected)
        assert [os.sched_getaffinity(task) for task in workers] == [allowed] * len(workers)
    finally:
        for task in (0, *workers):
            os.sched_setaffinity(task, whole)


def test_others_see_what_the_threads_are_at(runner: Runner) -> None:
    runner = Runner(runner.program, num_threads=3)
    before = runner.pool.activity()
    measure_dot_peak(runner.pool, 0.02)
    after = runner.pool.activity()
    assert len(after.cpu_seconds) == 3
    assert all(end_s > start_s for start_s, end_s in zip(before.cpu_seconds, after.cpu_seconds, strict=True))
    assert after.num_tasks == before.num_tasks
    runner.run([Chunk([1, 2, 3], [0])])
    assert runner.pool.activity().num_tasks > after.num_tasks
    worker_sleeps()
    assert runner.pool.activity().num_asleep == 2  # the caller does something else
    runner.pool.close()
    assert runner.pool.activity().num_asleep == 0


def test_close_ends_the_threads() -> None:
    before = num_threads()
    pools = [ThreadPool(4) for _ in range(3)]
    assert num_threads() == before + 9
    for pool in pools:
        pool.close()
        pool.close()
    assert num_threads() == before
    assert pools[0].num_threads == 4


def test_collecting_ends_the_threads() -> None:
    before = num_threads()
    for _ in range(50):
        ThreadPool(3)
    assert num_threads() == before


def test_a_closed_pool_runs_nothing(runner: Runner) -> None:
    runner.pool.close()
    with pytest.raises(NativeError, match="closed"):
        runner.run([Chunk([1], [0])])


@pytest.mark.parametrize("count", [0, -1, 100_000])
def test_impossible_sizes(count: int) -> None:
    with pytest.raises(NativeError, match="1 to 1024"):
        ThreadPool(count)


def test_callers_from_several_threads_take_turns(runner: Runner) -> None:
    """Their steps share the activations, so only what is in their own blocks can be compared."""
    runner.run([Chunk(range(20), [0, 1])])
    expected = runner.arenas[0].block(0).copy()
    others = [Runner(runner.program) for _ in range(4)]

    def work(other: Runner) -> None:
        other.pool = runner.pool
        for _ in range(50):
            other.run([Chunk(range(20), [0, 1])])

    threads = [threading.Thread(target=work, args=(other,)) for other in others]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for other in others:
        np.testing.assert_array_equal(other.arenas[0].block(0), expected)


def test_forked_child_is_told_and_exits(runner: Runner) -> None:
    """In a child the threads are gone: running would wait for ever, joining too."""
    runner.run([Chunk([1], [0])])
    child = os.fork()
    if child == 0:
        try:
            signal.alarm(20)
            runner.run([Chunk([1], [0])])
        except NativeError:
            runner.pool.close()
            del runner
            os._exit(7)
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 7
    runner.run([Chunk([1], [0])])


def test_interpreter_exits_with_a_live_pool() -> None:
    code = "from puna._native import ThreadPool; pool = ThreadPool(4); import sys; sys.pool = pool"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30)


def test_cpu_info_names_the_best_instruction_set() -> None:
    info = cpu_info()
    assert info.isa == info.isas[0]
    assert info.isas[-1] == "portable"
    assert info.logical_cpus == os.cpu_count()
    if info.isa == "avx512":
        assert {"avx512f", "avx512vnni"} <= set(info.features)


def test_a_closed_arena_is_refused(runner: Runner) -> None:
    runner.arenas[0].close()
    with pytest.raises(NativeError, match="closed"):
        runner.run([Chunk([1], [0])])
