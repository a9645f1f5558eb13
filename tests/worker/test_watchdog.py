"""A step that hangs ends the worker; one that is kept from getting on, or is only long, does not."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import NamedTuple

import pytest

from puna.engine.model import Model
from puna.engine.scheduling.scheduler import Step
from puna.worker.engine.watchdog import MOST_LOST_S, Look, StepWatch, Watchdog, look_at
from tests.engine.toy import ToyModel, run_all, toy_engine, toy_request

pytestmark = pytest.mark.native

MODEL = Model("m", ToyModel(), lambda: 0.0, name="m", share=1.0, guaranteed_bytes=0)
STEP = Step(MODEL, [])
MOST = round(MOST_LOST_S)


class Pool(NamedTuple):
    """As PoolActivity, of three threads."""

    cpu_seconds: list[float]
    num_asleep: int = 0
    num_tasks: int = 7


def looks(
    used: tuple[float, float, float],
    num_asleep: int,
    *,
    tick_s: float = 1.0,
    num_faults: int = 0,
    ticks_per_task: int = 10**9,
    step: Callable[[], Step | None] = lambda: STEP,
) -> Iterator[Look]:
    """One for each tick. used: of a processor by each thread; num_faults: in each tick."""
    for n in range(10 * MOST):
        pool = Pool([share * n * tick_s for share in used], num_asleep, n // ticks_per_task)
        yield Look(n * tick_s, step(), pool, n * num_faults)


def end_of(script: Iterable[Look]) -> tuple[str, int] | None:
    """What the worker ends with, and after how many ticks; None: it does not."""
    remaining = iter(script)
    watch = StepWatch(next(remaining))
    for num_ticks, look in enumerate(remaining, 1):
        if reason := watch.see(look):
            return reason, num_ticks
    return None


@pytest.mark.parametrize(
    ("used", "num_asleep", "seconds"),
    [
        ((0, 0, 0), 3, MOST),
        ((1, 0, 0), 2, MOST),
        ((0, 1, 0.75), 1, 80),
        ((0.5, 0.5, 0.5), 0, 120),
        ((0.25, 0, 0), 2, 240),
    ],
    ids=["all wait for each other", "one works for ever", "two work", "all work", "beside others"],
)
def test_a_step_that_hangs_ends_the_worker(used: tuple[float, float, float], num_asleep: int, seconds: int):
    end = f"a step of 0 tokens of model m has not got on for {seconds} s"
    assert end_of(looks(used, num_asleep)) == (end, seconds)


HONEST = {
    "suspended": looks((1, 0, 0), 2, tick_s=30),
    "suspended and asleep": looks((0, 0, 0), 3, tick_s=30),
    "no processor": looks((0, 0, 0), 2),
    "too few processors": looks((1, 1, 0.05), 0),
    "a disk": looks((0, 0, 0), 2),
    "a disk beside one that works": looks((1, 0, 0), 1),
    "swapping": looks((1, 0, 0), 2, num_faults=1),
    "long tasks": looks((1, 1, 1), 0, ticks_per_task=MOST),
    "many steps": looks((1, 0, 0), 2, step=lambda: Step(MODEL, [])),
    "no step": looks((1, 0, 0), 2, step=lambda: None),
}


@pytest.mark.parametrize("script", HONEST.values(), ids=HONEST)
def test_what_only_waits_or_takes_long_goes_on(script: Iterator[Look]):
    assert end_of(script) is None


def test_ticks_that_do_not_count_lie_between():
    script = [look._replace(num_major_faults=n // 2) for n, look in enumerate(looks((0, 0, 0), 3))]
    end = end_of(script)
    assert end is not None
    assert end[1] == pytest.approx(2 * MOST, abs=1)


def test_the_watchdog_looks_while_there_are_steps():
    idle = next(looks((0, 0, 0), 3, step=lambda: None))
    script = chain([idle], looks((0, 0, 0), 3))
    has_ended, reasons = threading.Event(), list[str]()

    def end(reason: str) -> None:
        reasons.append(reason)
        has_ended.set()

    watchdog = Watchdog(lambda: next(script), end, tick_s=0.001)
    watchdog.start()
    watchdog.notice_step()
    assert has_ended.wait(60)
    watchdog.close()
    assert len(reasons) == 1


def test_a_watchdog_without_steps_can_be_closed():
    watchdog = Watchdog(lambda: next(looks((0, 0, 0), 3, step=lambda: None)))
    watchdog.start()
    watchdog.close()


def test_it_sees_the_step_that_is_computed():
    class Watched(ToyModel):
        def logits(self, batch, kv):
            seen.append(look_at(engine))
            return super().logits(batch, kv)

    seen: list[Look] = []
    engine = toy_engine(Watched())
    engine.submit(toy_request("r", [1, 2, 3], 2))
    run_all(engine)
    steps = [one.step for one in seen if one.step is not None]
    assert [(step.model.id, sum(step.count_tokens())) for step in steps] == [("toy", 3), ("toy", 1)]
    assert seen[1].has_moved_since(seen[0])
    assert look_at(engine).step is None
