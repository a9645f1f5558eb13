"""Models come when asked for, stay for their keep-alive time, and sleep or go without harming anyone.

Time is virtual: `asyncio.sleep` costs nothing and timers fire exactly when they should.
"""

from __future__ import annotations

import asyncio
import math
from contextlib import AsyncExitStack

import pytest

from puna.daemon.busy import ServerBusy
from puna.daemon.models.residency import Residency
from puna.daemon.models.sleepers import MAX_SLEEPERS

pytestmark = pytest.mark.unit

LOAD_S = 1.0
WAKE_S = 0.125
KEEP_S = 300.0


class Models:
    """Fake models: a load takes LOAD_S, and what happens is written down with its time."""

    def __init__(self, **options) -> None:
        self.events: list[tuple[str, float]] = []
        self.failing: set[str] = set()
        self.insomniac: set[str] = set()
        self.residency: Residency[str] = Residency(self, keep_alive_s=KEEP_S, **options)

    def hold(self, key, keep_alive_s=None):
        return self.residency.hold(key, lambda: self._load(key), keep_alive_s)

    async def use(self, key, seconds=0.0, keep_alive_s=None):
        async with self.hold(key, keep_alive_s):
            await asyncio.sleep(seconds)

    async def _load(self, key):
        self._record(f"load {key}")
        await asyncio.sleep(LOAD_S)
        if key in self.failing:
            raise ValueError(f"{key} is broken")
        return key

    async def sleep(self, key):
        self._record(f"sleep {key}")
        await asyncio.sleep(0.25)
        return key not in self.insomniac

    async def wake(self, key):
        self._record(f"wake {key}")
        await asyncio.sleep(WAKE_S)
        if key in self.failing:
            raise ValueError(f"{key} is broken")

    def set_held(self, key, *, is_held):
        pass

    async def unload(self, key):
        self._record(f"unload {key}")
        await asyncio.sleep(0.25)

    def _record(self, event):
        self.events.append((event, asyncio.get_running_loop().time()))

    @property
    def names(self):
        return [event for event, _ in self.events]

    @property
    def loaded(self):
        return sorted(entry.key for entry in self.residency.loaded())

    @property
    def asleep(self):
        return self.residency.asleep()


def test_requests_for_a_loading_model_wait_for_the_one_load(virtual_time):
    async def main():
        models = Models()
        await asyncio.gather(*(models.use("a") for _ in range(5)))
        assert models.names == ["load a"]

    virtual_time(main)


def test_loading_one_model_does_not_delay_another(virtual_time):
    async def main():
        models = Models()
        await models.use("a")
        start = asyncio.get_running_loop().time()
        loading = asyncio.create_task(models.use("b"))
        await asyncio.sleep(0.1)
        await models.use("a")
        assert asyncio.get_running_loop().time() == start + 0.1
        await asyncio.gather(loading, models.use("c"))
        assert models.loaded == ["a", "b", "c"]
        assert asyncio.get_running_loop().time() == pytest.approx(start + 0.1 + LOAD_S)

    virtual_time(main)


def test_keep_alive_starts_when_the_last_holder_leaves(virtual_time):
    async def main():
        models = Models()
        await asyncio.gather(models.use("a", 10), models.use("a", 1000))
        await asyncio.sleep(KEEP_S - 1)
        assert models.loaded == ["a"]
        await asyncio.sleep(2)
        assert models.loaded == []
        assert models.events[-1] == ("sleep a", pytest.approx(LOAD_S + 1000 + KEEP_S))

    virtual_time(main)


def test_a_new_request_stops_the_timer(virtual_time):
    async def main():
        models = Models()
        await models.use("a")
        await asyncio.sleep(KEEP_S - 1)
        await models.use("a", 2 * KEEP_S)
        await asyncio.sleep(KEEP_S - 1)
        assert models.names == ["load a"]

    virtual_time(main)


def test_keep_alive_of_a_request_replaces_the_stored_one_and_stays(virtual_time):
    async def main():
        models = Models()
        await models.use("a", keep_alive_s=10)
        await asyncio.sleep(9)
        await models.use("a")
        await asyncio.sleep(9)
        assert models.loaded == ["a"]
        await asyncio.sleep(2)
        assert models.loaded == []
        await models.use("a")  # woken: the default again
        await asyncio.sleep(KEEP_S - 1)
        assert models.loaded == ["a"]

    virtual_time(main)


def test_keep_alive_zero_unloads_at_once_when_idle(virtual_time):
    async def main():
        models = Models()
        running = asyncio.create_task(models.use("a", 10))
        await models.use("a", keep_alive_s=0)
        assert models.loaded == ["a"]
        await running
        assert models.loaded == ["a"]  # leaving, in an instant
        await asyncio.sleep(0.3)
        assert models.loaded == []
        assert models.events == [("load a", 0), ("unload a", LOAD_S + 10)]

    virtual_time(main)


def test_endless_keep_alive_never_expires(virtual_time):
    async def main():
        models = Models()
        await models.use("a", keep_alive_s=math.inf)
        await asyncio.sleep(1e6)
        assert models.loaded == ["a"]
        (entry,) = models.residency.loaded()
        assert entry.expires_at.year > 2300

    virtual_time(main)


def test_unload_waits_for_running_requests(virtual_time):
    async def main():
        models = Models()
        running = asyncio.create_task(models.use("a", 10))
        await asyncio.sleep(2)
        await models.residency.unload("a")
        assert models.names == ["load a"]
        await models.use("a", 1)  # still there, and a new request does not cancel the unload
        await running
        await asyncio.sleep(0.3)
        assert models.events[-1] == ("unload a", LOAD_S + 10)

    virtual_time(main)


def test_unload_of_an_idle_model_has_happened_when_it_returns(virtual_time):
    async def main():
        models = Models()
        await models.use("a")
        await models.residency.unload("a")
        assert models.loaded == []
        assert models.names == ["load a", "unload a"]
        await models.residency.unload("a")
        await models.residency.unload("never heard of")

    virtual_time(main)


def test_request_during_unload_loads_again(virtual_time):
    async def main():
        models = Models()
        await models.use("a", keep_alive_s=0)
        await models.use("a")
        assert models.names == ["load a", "unload a", "load a"]
        assert models.loaded == ["a"]

    virtual_time(main)


def test_failed_load_reaches_everyone_who_waits_and_is_tried_again_next_time(virtual_time):
    async def main():
        models = Models()
        models.failing.add("a")
        results = await asyncio.gather(*(models.use("a") for _ in range(3)), return_exceptions=True)
        assert [str(result) for result in results] == ["a is broken"] * 3
        assert models.loaded == []
        models.failing.clear()
        await models.use("a")
        assert models.names == ["load a", "load a"]

    virtual_time(main)


def test_cancelled_request_leaves_the_load_to_the_others(virtual_time):
    async def main():
        models = Models()
        first = asyncio.create_task(models.use("a"))
        second = asyncio.create_task(models.use("a"))
        await asyncio.sleep(LOAD_S / 2)
        first.cancel()
        await second
        assert models.names == ["load a"]

    virtual_time(main)


def test_load_that_nobody_waits_for_any_more_ends_idle(virtual_time):
    async def main():
        models = Models()
        request = asyncio.create_task(models.use("a"))
        await asyncio.sleep(LOAD_S / 2)
        request.cancel()
        await asyncio.sleep(LOAD_S)
        assert models.loaded == ["a"]
        await asyncio.sleep(KEEP_S)
        assert models.names == ["load a", "sleep a"]

    virtual_time(main)


def test_unload_calls_off_a_load_that_nobody_waits_for(virtual_time):
    async def main():
        models = Models()
        request = asyncio.create_task(models.use("a"))
        await asyncio.sleep(LOAD_S / 2)
        request.cancel()
        await asyncio.sleep(LOAD_S / 4)
        await models.residency.unload("a")
        assert models.events == [("load a", 0.0)]
        assert asyncio.get_running_loop().time() < LOAD_S
        await models.use("a")
        assert models.names == ["load a", "load a"]

    virtual_time(main)


def test_least_recently_used_idle_model_makes_room(virtual_time):
    async def main():
        models = Models(max_loaded=2)
        for key in "abac":
            await models.use(key)
            await asyncio.sleep(1)
        assert models.names == ["load a", "load b", "sleep b", "load c"]
        assert models.loaded == ["a", "c"]

    virtual_time(main)


def test_busy_model_makes_room_when_its_requests_are_done(virtual_time):
    async def main():
        models = Models(max_loaded=1)
        running = asyncio.create_task(models.use("a", 10))
        await asyncio.sleep(2)
        waiting = asyncio.create_task(models.use("b"))
        await asyncio.sleep(2)
        assert models.loaded == ["a"]
        # "a" must not be kept forever by those who come after "b": they queue behind it.
        late = asyncio.create_task(models.use("a"))
        await asyncio.gather(running, waiting, late)
        assert models.names == ["load a", "sleep a", "load b", "sleep b", "wake a"]

    virtual_time(main)


def test_request_cancelled_while_it_waits_for_room_evicts_nobody_later(virtual_time):
    async def main():
        models = Models(max_loaded=1)
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(models.hold("a"))
            first = asyncio.create_task(models.use("b"))
            second = asyncio.create_task(models.use("c"))
            await asyncio.sleep(1)
            second.cancel()
            await asyncio.sleep(1)
        await first
        await asyncio.sleep(10)
        assert models.names == ["load a", "sleep a", "load b"]

    virtual_time(main)


def test_there_is_room_for_what_need_not_wait_for_others(virtual_time):
    async def main():
        models = Models(max_loaded=2)
        async with models.hold("a"):
            assert models.residency.has_room("a")
            assert models.residency.has_room("b")
            waiting = [asyncio.create_task(models.use(key, 1.0)) for key in "bc"]
            await asyncio.sleep(LOAD_S / 2)
            assert models.residency.has_room("b"), "it is loading"
            assert not models.residency.has_room("c"), "it waits for room itself"
            assert not models.residency.has_room("d")
        await asyncio.gather(*waiting)
        models.residency.lose("b")
        assert not models.residency.has_room("b"), "it leaves"

    virtual_time(main)


def test_too_many_waiting_requests_are_refused_but_loaded_models_stay_open(virtual_time):
    async def main():
        models = Models(max_waiting=1)
        await models.use("a")
        waiting = [asyncio.create_task(models.use(key)) for key in "bc"]
        await asyncio.sleep(0)
        with pytest.raises(ServerBusy, match="maximum pending requests exceeded"):
            await models.use("d")
        await models.use("a")
        await asyncio.gather(*waiting)
        await models.use("d")

    virtual_time(main)


def test_without_a_queue_one_model_after_the_other_is_loaded_for_all_who_want_it(virtual_time):
    async def main():
        models = Models(max_waiting=0)
        waiting = [asyncio.create_task(models.use("a"))]
        await asyncio.sleep(0.01)
        waiting += [asyncio.create_task(models.use("a")) for _ in range(3)]
        with pytest.raises(ServerBusy):
            await models.use("b")
        await asyncio.gather(*waiting)
        await models.use("b")
        assert models.names[:2] == ["load a", "load b"]

    virtual_time(main)


def test_lost_model_finishes_what_runs_and_takes_nothing_new(virtual_time):
    async def main():
        models = Models()
        running = asyncio.create_task(models.use("a", 10))
        await asyncio.sleep(2)
        models.residency.lose("a")
        await asyncio.gather(running, models.use("a"))
        assert models.names == ["load a", "unload a", "load a"]

    virtual_time(main)


def test_expiry_is_now_plus_keep_alive_while_busy_and_fixed_when_idle(virtual_time):
    async def main():
        models = Models()
        async with models.hold("a"):
            (entry,) = models.residency.loaded()
            first = entry.expires_at
            assert entry.expires_at > first
        assert entry.expires_at == entry.expires_at
        assert entry.expires_at.tzinfo is not None

    virtual_time(main)


def test_close_ends_timers_and_pending_loads(virtual_time):
    async def main():
        models = Models()
        await models.use("a")
        loading = asyncio.create_task(models.use("b"))
        await asyncio.sleep(LOAD_S / 2)
        await models.residency.close()
        with pytest.raises(asyncio.CancelledError):
            await loading
        await asyncio.sleep(2 * KEEP_S)
        assert models.names == ["load a", "load b"]

    virtual_time(main)


def test_model_that_sleeps_is_woken_by_the_next_request(virtual_time):
    async def main():
        models = Models()
        await models.use("a")
        await asyncio.sleep(KEEP_S + 1)
        assert (models.loaded, models.asleep) == ([], ["a"])
        start = asyncio.get_running_loop().time()
        await asyncio.gather(*(models.use("a") for _ in range(3)))
        assert asyncio.get_running_loop().time() == start + WAKE_S
        assert (models.loaded, models.asleep) == (["a"], [])
        assert models.names == ["load a", "sleep a", "wake a"]

    virtual_time(main)


def test_request_for_a_model_that_falls_asleep_wakes_it(virtual_time):
    async def main():
        models = Models()
        await models.use("a")
        await asyncio.sleep(KEEP_S + 0.1)
        assert models.names == ["load a", "sleep a"]
        await models.use("a")
        assert models.names == ["load a", "sleep a", "wake a"]

    virtual_time(main)


def test_unload_of_a_model_that_sleeps_or_falls_asleep_is_for_good(virtual_time):
    async def main():
        models = Models()
        await models.use("a")
        await asyncio.sleep(KEEP_S + 1)
        await models.residency.unload("a")
        assert models.names == ["load a", "sleep a", "unload a"]
        await models.use("a")
        await asyncio.sleep(KEEP_S + 0.1)
        await models.residency.unload("a")  # in the middle of it
        assert models.names == 2 * ["load a", "sleep a", "unload a"]
        assert models.asleep == []

    virtual_time(main)


@pytest.mark.parametrize("is_unloaded", [False, True])
def test_model_whose_wake_is_called_off_sleeps_on_unless_it_was_to_be_unloaded(virtual_time, is_unloaded):
    models = Models(max_loaded=1)

    async def main():
        await models.use("a")
        async with models.hold("b"):
            assert models.residency.asleep() == ["a"]
            waiting = asyncio.create_task(models.use("a"))
            await asyncio.sleep(1)
            if is_unloaded:
                await models.residency.unload("a")
            waiting.cancel()
            await asyncio.sleep(1)
            assert models.residency.asleep() == ["a"] * (not is_unloaded)
        assert ("unload a" in [what for what, _ in models.events]) == is_unloaded

    virtual_time(main)


def test_request_during_the_unload_of_a_sleeper_loads_when_that_is_done(virtual_time):
    async def main():
        models = Models()
        await models.use("a")
        await asyncio.sleep(KEEP_S + 1)
        unloading = asyncio.create_task(models.residency.unload("a"))
        await asyncio.sleep(0.0625)
        await models.use("a")
        assert models.names == ["load a", "sleep a", "unload a", "load a"]
        assert models.events[-1][1] - models.events[-2][1] == 0.25
        await unloading

    virtual_time(main)


def test_model_that_cannot_sleep_is_unloaded(virtual_time):
    async def main():
        models = Models()
        models.insomniac.add("a")
        await models.use("a")
        await asyncio.sleep(KEEP_S + 1)
        assert models.names == ["load a", "sleep a", "unload a"]
        assert models.asleep == []

    virtual_time(main)


def test_model_that_cannot_be_woken_is_unloaded_and_loaded_next_time(virtual_time):
    async def main():
        models = Models()
        await models.use("a")
        await asyncio.sleep(KEEP_S + 1)
        models.failing.add("a")
        with pytest.raises(ValueError, match="a is broken"):
            await models.use("a")
        models.failing.clear()
        await models.use("a")
        assert models.names == ["load a", "sleep a", "wake a", "unload a", "load a"]

    virtual_time(main)


def test_the_longest_asleep_is_unloaded_when_too_many_sleep(virtual_time):
    async def main():
        models = Models(max_loaded=1)
        keys = "abcdefghij"
        for key in keys:
            await models.use(key)
        assert models.asleep == list(keys[1:9])
        assert len(models.asleep) == MAX_SLEEPERS
        await models.use("b")
        await models.use("k")
        assert models.asleep == [*keys[3:], "b"]
        await asyncio.sleep(1)
        assert [name for name in models.names if name.startswith("unload")] == ["unload a", "unload c"]

    virtual_time(main)
