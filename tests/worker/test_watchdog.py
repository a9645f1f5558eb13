"""A step that hangs ends the worker; one that is kept from getting on, or is only long, does not."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import pytest

from puna.engine.scheduler import Step
from puna.worker.engine.watchdog import MOST_TICKS, Look, Watchdog, look_at
from tests.engine.toy import ToyModel, run_all, toy_engine, toy_request

pytestmark = pytest.mark.native

TICK_S = 0.001
STEP = Step("m", [])


class Pool(NamedTuple):
    """As PoolActivity, of three threads."""

    cpu_seconds: list[float]
    num_asleep: int = 0
    num_tasks: int = 7


def looks(
    used: tuple[float, float, float],
    num_asleep: int,
    *,
    length: float = 1.0,
    num_faults: int = 0,
    most_ticks_per_task: int = 10**9,
    step: Callable[[], Step | None] = lambda: STEP,
    count: int = 3 * MOST_TICKS,
) -> Iterator[Look]:
    """One for each tick. used: of a processor by each thread; length: of a tick; num_faults: in each."""
    for n in range(count):
        pool = Pool([share * n * length * TICK_S for share in used], num_asleep, n // most_ticks_per_task)
        yield Look(n * length * TICK_S, step(), pool, n * num_faults)


def end_of(script: Iterable[Look]) -> tuple[str | None, int]:
    """What the watchdog ends the worker with, and after how many looks; None: it does not."""
    remaining, seen = iter(script), list[Look]()
    is_over = threading.Event()
    reasons: list[str] = []

    def look() -> Look:
        watchdog.notice_step()
        found = next(remaining, None)
        if found is None:
            is_over.set()
            return seen[-1]._replace(step=None)
        seen.append(found)
        return found

    def end(reason: str) -> None:
        reasons.append(reason)
        is_over.set()

    watchdog = Watchdog(look, end, TICK_S)
    watchdog.start()
    assert is_over.wait(60)
    watchdog.close()
    return (reasons[0] if reasons else None), len(seen)


@pytest.mark.parametrize(
    ("used", "num_asleep"),
    [((0, 0, 0), 3), ((0.9, 0, 0), 2), ((0, 1, 0.8), 1), ((0.6, 0.7, 0.8), 0)],
    ids=["all wait for each other", "the caller works for ever", "two work", "all work"],
)
def test_a_step_that_hangs_ends_the_worker(used: tuple[float, float, float], num_asleep: int):
    reason, num_looks = end_of(looks(used, num_asleep))
    assert reason == "a step of 0 tokens of model m has not got on for 0 s"
    assert num_looks == MOST_TICKS + 1


HONEST = {
    "suspended": looks((1, 0, 0), 2, length=30),
    "suspended and asleep": looks((0, 0, 0), 3, length=30),
    "no processor for one": looks((0.1, 0, 0), 2),
    "too few processors": looks((0.4, 0.4, 0.4), 0),
    "a disk": looks((0, 0, 0), 2),
    "a disk beside one that works": looks((1, 0, 0), 1),
    "swapping": looks((1, 0, 0), 2, num_faults=1),
    "long tasks": looks((1, 1, 1), 0, most_ticks_per_task=MOST_TICKS - 1),
    "many steps": looks((1, 0, 0), 2, step=lambda: Step("m", [])),
    "no step": looks((1, 0, 0), 2, step=lambda: None),
}


@pytest.mark.parametrize("script", HONEST.values(), ids=HONEST)
def test_what_only_waits_or_takes_long_goes_on(script: Iterator[Look]):
    assert end_of(script)[0] is None


def test_ticks_that_do_not_count_lie_between():
    script = list(looks((0, 0, 0), 3, count=5 * MOST_TICKS))
    script = [one._replace(num_major_faults=n // 2) for n, one in enumerate(script)]
    reason, num_looks = end_of(script)
    assert reason is not None
    assert num_looks == pytest.approx(2 * MOST_TICKS, abs=2)


def test_it_sees_the_step_that_is_computed():
    class Watched(ToyModel):
        def run(self, batch, arena):
            seen.append(look_at(engine))
            return super().run(batch, arena)

    seen: list[Look] = []
    engine = toy_engine(Watched())
    engine.submit(toy_request("r", [1, 2, 3], 2))
    run_all(engine)
    steps = [one.step for one in seen if one.step is not None]
    assert [(step.model_id, step.num_tokens) for step in steps] == [("toy", 3), ("toy", 1)]
    assert seen[1].has_moved_since(seen[0])
    assert look_at(engine).step is None
