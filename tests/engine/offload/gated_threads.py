"""File threads that stop before each block, with the block in use, until the test lets them go on."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest

from puna.engine.offload.disk import ThreadKind
from puna.kv.files.block_files import BlockFiles

Work = Callable[[], None]
_PATIENCE_S = 60.0  # only a test that fails waits for so long


class _Thread:
    """Runs when advance() says so, until the next block or its end: never beside the test's own thread."""

    def __init__(self, work: Work) -> None:
        self.is_done = False
        self.error: BaseException | None = None
        self._work = work
        self._go_on, self._has_stopped = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.gate = self.stop  # type: ignore[attr-defined]
        self._thread.start()

    def advance(self) -> None:
        self._go_on.release()
        assert self._has_stopped.acquire(timeout=_PATIENCE_S), "a file thread hangs"
        if self.error is not None:
            raise self.error

    def stop(self) -> None:
        self._has_stopped.release()
        self._go_on.acquire()

    def _run(self) -> None:
        self._go_on.acquire()
        try:
            self._work()
        except BaseException as error:  # for the test
            self.error = error
        self.is_done = True
        self._has_stopped.release()


@dataclass(eq=False)
class _Job:
    done: Work
    num_left: int


@dataclass(eq=False)
class _Pool:
    size: int
    queue: deque[tuple[Work, _Job]] = field(default_factory=deque)
    running: list[tuple[_Thread, _Job]] = field(default_factory=list)


class GatedThreads:
    """A FileThreads: two readers, and one of each other kind. What is done waits for the engine's thread."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._pools: dict[ThreadKind, _Pool] = {
            "find": _Pool(1),
            "read": _Pool(2),
            "write": _Pool(1),
            "sessions": _Pool(1),
        }
        self._done: list[_Job] = []

    def start(self, kind: ThreadKind, work: Work, done: Work, num_threads: int = 1) -> None:
        job = _Job(done, num_threads)
        self._pools[kind].queue.extend((work, job) for _ in range(num_threads))

    @property
    def has_work(self) -> bool:
        return bool(self._done) or any(pool.queue or pool.running for pool in self._pools.values())

    @property
    def is_reading(self) -> bool:
        """Whether blocks are read into, as far as the engine knows."""
        return bool(self._pools["read"].queue or self._pools["read"].running or self._done)

    def advance(self) -> bool:
        """Lets one thread come to its next block, or the engine's thread hear that a job is done."""
        choices: list[Work] = [lambda job=job: self._hear(job) for job in self._done]
        for pool in self._pools.values():
            while pool.queue and len(pool.running) < pool.size:
                work, job = pool.queue.popleft()
                pool.running.append((_Thread(work), job))
            choices += [lambda pool=pool, item=item: self._advance(pool, item) for item in pool.running]
        if choices:
            self._random.choice(choices)()
        return bool(choices)

    def finish(self) -> None:
        while self.advance():
            pass

    def _advance(self, pool: _Pool, item: tuple[_Thread, _Job]) -> None:
        thread, job = item
        thread.advance()
        if thread.is_done:
            pool.running.remove(item)
            job.num_left -= 1
            if job.num_left == 0:
                self._done.append(job)

    def _hear(self, job: _Job) -> None:
        self._done.remove(job)
        job.done()


def stop_at_each_block(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("read", "write", "replace"):
        monkeypatch.setattr(BlockFiles, name, _gated(getattr(BlockFiles, name)))


def _gated(method: Callable[..., Any]) -> Callable[..., Any]:
    def gated(*arguments: Any) -> Any:
        if gate := getattr(threading.current_thread(), "gate", None):
            gate()
        return method(*arguments)

    return gated
