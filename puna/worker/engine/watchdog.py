"""Ends the worker when a step hangs: the daemon then starts another, and only what ran is lost.

A step hangs only through a mistake of ours: its threads wait for each other, or one works for ever. A long
step is never taken for that, nor one on a machine that is suspended, overloaded or swapping: what counts is
time in which nothing but the step itself kept it from getting on.
"""

from __future__ import annotations

import logging
import os
import resource
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from puna._native import PoolActivity
from puna.engine import EngineCore
from puna.engine.scheduler import Step

log = logging.getLogger(__name__)

TICK_S = 1.0
"""So often it is looked while a step runs; without work, never."""
MOST_TICKS = 60
"""With so many that counted, the step hangs. A task takes milliseconds of processor time."""
_LATEST = 1.5
"""A tick that took so many times as long does not count: the machine was suspended, or had no time for us."""
_BUSY = 0.5
"""A thread had a processor if it used one for this share of a tick."""


class Look(NamedTuple):
    """What is seen at one moment."""

    now_s: float
    step: Step | None
    """That is being computed."""
    pool: PoolActivity
    num_major_faults: int
    """How often a thread of the process had to wait for a disk."""

    def has_moved_since(self, before: Look) -> bool:
        return self.step is not before.step or self.pool.num_tasks != before.pool.num_tasks


def look_at(engine: EngineCore) -> Look:
    """From any thread."""
    num_major_faults = resource.getrusage(resource.RUSAGE_SELF).ru_majflt
    return Look(time.monotonic(), engine.under_way, engine.backend.pool.activity(), num_major_faults)


def counts(before: Look, now: Look, tick_s: float) -> bool:
    """Whether nothing kept a step that has not moved from getting on.

    Every thread then sleeps until another one has done something, or had a processor. One of which neither is
    true waits for a processor or for a disk, and so do all that wait for it.
    """
    seconds = now.now_s - before.now_s
    if seconds > _LATEST * tick_s or now.num_major_faults != before.num_major_faults:
        return False
    used = zip(before.pool.cpu_seconds, now.pool.cpu_seconds, strict=True)
    num_busy = sum(end_s - start_s >= _BUSY * seconds for start_s, end_s in used)
    return num_busy >= len(now.pool.cpu_seconds) - now.pool.num_asleep


class Watchdog:
    """A thread that looks at an engine's steps.

    look: see look_at(). end: called with what is wrong; the process is then of no use any more.
    """

    def __init__(
        self, look: Callable[[], Look], end: Callable[[str], None] | None = None, tick_s: float = TICK_S
    ) -> None:
        self._look = look
        self._end = end or _end_process
        self._tick_s = tick_s
        self._has_steps = threading.Event()
        self._is_closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watchdog", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def notice_step(self) -> None:
        """To be called before each step, or it might go unseen."""
        if not self._has_steps.is_set():
            self._has_steps.set()

    def close(self) -> None:
        self._is_closed.set()
        self._has_steps.set()
        self._thread.join()

    def _run(self) -> None:
        first = before = self._look()
        num_ticks = 0
        while True:
            if before.step is None:
                self._has_steps.wait()
                self._has_steps.clear()
            if self._is_closed.wait(self._tick_s):
                return
            now = self._look()
            if now.step is None or now.has_moved_since(before):
                first, num_ticks = now, 0
            elif counts(before, now, self._tick_s):
                num_ticks += 1
            before = now
            if num_ticks == MOST_TICKS:
                self._end(_describe(first, now))
                return


def _describe(first: Look, now: Look) -> str:
    assert now.step is not None
    num_tokens, seconds = now.step.num_tokens, now.now_s - first.now_s
    return f"a step of {num_tokens} tokens of model {now.step.model_id} has not got on for {seconds:.0f} s"


def _end_process(reason: str) -> None:
    log.critical("%s: the worker ends", reason)
    os._exit(1)  # no thread can be waited for
