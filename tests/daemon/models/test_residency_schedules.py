"""Whatever the order of requests, cancels and unloads: no model sleeps or goes under a request, the limits
hold, everyone is served or cancelled, and in the end nothing is resident.
"""

from __future__ import annotations

import asyncio
from typing import Literal, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from puna.daemon.models.residency import Residency

pytestmark = pytest.mark.unit

KEEP_S = 5.0


class Visit(NamedTuple):
    key: str
    start_s: float
    use_s: float
    keep_alive_s: float | None
    cancel_s: float | None
    """After the start."""
    then: Literal["unload", None]
    """What is asked for when done."""


class Failing(Exception):
    pass


times = st.sampled_from([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 7.0])
visits = st.builds(
    Visit,
    key=st.sampled_from(["a", "b", "c", "d", "broken"]),
    start_s=times,
    use_s=times,
    keep_alive_s=st.sampled_from([None, None, 0.0, 1.0, 20.0]),
    cancel_s=st.sampled_from([None, None, 0.0, 0.5, 1.0, 2.5]),
    then=st.sampled_from(["unload", None]),
)


class Models:
    """Fake models that check how they are treated."""

    def __init__(self, max_loaded: int) -> None:
        self.max_loaded = max_loaded
        self.awake: set[str] = set()
        self.asleep: set[str] = set()
        self.users: dict[str, int] = {}
        self.held: set[str] = set()
        self.num_served = 0
        self.residency: Residency[str] = Residency(self, keep_alive_s=KEEP_S, max_loaded=max_loaded)

    async def load(self, key: str) -> str:
        assert key not in self.awake | self.asleep, "loaded twice"
        self.arrive(key)
        try:
            await asyncio.sleep(1.0)
            if key == "broken":
                raise Failing
        except BaseException:
            self.awake.remove(key)
            raise
        return key

    async def wake(self, key: str) -> None:
        self.asleep.remove(key)
        self.arrive(key)
        await asyncio.sleep(0.25)

    def arrive(self, key: str) -> None:
        self.awake.add(key)
        self.held.add(key)
        assert not self.max_loaded or len(self.awake) <= self.max_loaded

    async def sleep(self, key: str) -> bool:
        await self.leave(key, 0.25)
        self.asleep.add(key)
        return True

    def set_held(self, key: str, *, is_held: bool) -> None:
        (self.held.add if is_held else self.held.discard)(key)

    async def unload(self, key: str) -> None:
        if key in self.asleep:
            await asyncio.sleep(0.5)
            self.asleep.remove(key)
        else:
            await self.leave(key, 0.5)

    async def leave(self, key: str, seconds: float) -> None:
        assert not self.users.get(key), "taken away while in use"
        await asyncio.sleep(seconds)
        assert not self.users.get(key), "given to a request while it was being taken away"
        self.awake.remove(key)

    async def visit(self, visit: Visit) -> None:
        await asyncio.sleep(visit.start_s)
        using = asyncio.create_task(self.use(visit))
        if visit.cancel_s is not None:
            await asyncio.sleep(visit.cancel_s)
            using.cancel()
        await asyncio.wait([using])
        if not using.cancelled():
            failed = isinstance(using.exception(), Failing)
            assert failed == (visit.key == "broken")
            self.num_served += 1
        if visit.then == "unload":
            await self.residency.unload(visit.key)

    async def use(self, visit: Visit) -> None:
        load = lambda: self.load(visit.key)  # noqa: E731
        async with self.residency.hold(visit.key, load, visit.keep_alive_s) as value:
            assert value == visit.key
            assert value in self.held
            self.users[value] = self.users.get(value, 0) + 1
            try:
                await asyncio.sleep(visit.use_s)
            finally:
                self.users[value] -= 1


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(plan=st.lists(visits, min_size=1, max_size=12), max_loaded=st.integers(0, 2))
def test_any_schedule(virtual_time, monkeypatch, plan, max_loaded):
    monkeypatch.setattr("puna.daemon.models.sleepers.MAX_SLEEPERS", 2)

    async def main():
        models = Models(max_loaded)
        await asyncio.gather(*map(models.visit, plan))
        assert models.num_served >= sum(visit.cancel_s is None for visit in plan)
        await asyncio.sleep(30)
        assert models.awake == set()
        assert models.residency.loaded() == []
        assert models.asleep == set(models.residency.asleep())
        assert len(models.asleep) <= 2

    virtual_time(main)
