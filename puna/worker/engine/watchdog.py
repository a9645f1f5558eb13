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
from puna.engine.scheduling.scheduler import Step

log = logging.getLogger(__name__)

TICK_S = 1.0
"""So often it is looked while a step runs; without work, never."""
MOST_LOST_S = 60.0
"""A step that lost so much hangs. A task takes milliseconds of processor time."""
_LATEST_S = 1.5
"""A tick that took longer does not count: the machine was suspended, or had no time for us."""


class Look(NamedTuple):
    """The state of a step at one moment."""

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
    return Look(time.monotonic(), engine.under_way, engine.backend.activity(), num_major_faults)


def lost_s(before: Look, now: Look) -> float:
    """For how many seconds of a tick nothing kept a step that has not moved from getting on.

    For as long as all threads worked that do not sleep until another one has done something: one that neither
    sleeps nor works waits for a processor or for a disk, and the others perhaps for it.
    """
    seconds = now.now_s - before.now_s
    if seconds > _LATEST_S or now.num_major_faults != before.num_major_faults:
        return 0.0
    times = zip(before.pool.cpu_seconds, now.pool.cpu_seconds, strict=True)
    used = sorted((end_s - start_s for start_s, end_s in times), reverse=True)
    num_awake = max(len(used) - now.pool.num_asleep, 0)
    return min([seconds, *used[:num_awake]])


class StepWatch:
    """Adds up what a step loses."""

    def __init__(self, first: Look) -> None:
        self._since = self._before = first
        self._lost_s = 0.0

    def see(self, now: Look) -> str | None:
        """To be called with each look. Says what is wrong once a step hangs."""
        before, self._before = self._before, now
        if now.step is None or now.has_moved_since(before):
            self._since, self._lost_s = now, 0.0
            return None
        self._lost_s += lost_s(before, now)
        if self._lost_s < MOST_LOST_S:
            return None
        num_tokens, seconds = sum(now.step.count_tokens()), now.now_s - self._since.now_s
        return (
            f"a step of {num_tokens} tokens of model {now.step.model.id} has not got on for {seconds:.0f} s"
        )


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
        now = self._look()
        watch = StepWatch(now)
        while True:
            if now.step is None:
                self._has_steps.wait()
                self._has_steps.clear()
            if self._is_closed.wait(self._tick_s):
                return
            now = self._look()
            if reason := watch.see(now):
                self._end(reason)
                return


def _end_process(reason: str) -> None:
    log.critical("%s: the worker ends", reason)
    os._exit(1)  # no thread can be waited for
