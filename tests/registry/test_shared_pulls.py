"""Who pulls the same name shares one pull, which lives as long as the last who watches."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest

from puna.registry import PullError
from puna.registry.progress import Progress
from puna.registry.shared_pulls import MAX_AT_ONCE, SharedPulls

pytestmark = pytest.mark.unit


class Source:
    """A pull that goes on when it is told to, and counts."""

    def __init__(self, error=None):
        self.num_begun = self.num_ended = 0
        self.may_go_on = asyncio.Event()
        self.error = error

    async def pull(self):
        self.num_begun += 1
        try:
            yield Progress("pulling manifest")
            for completed in range(3):
                yield Progress("pulling x", total=3, completed=completed)
            await self.may_go_on.wait()
            if self.error:
                raise self.error
            yield Progress("success")
        finally:
            await asyncio.sleep(0.01)  # cleaning up takes a moment
            self.num_ended += 1


async def settle():
    """Until everybody waits: no step here takes more than a turn of the loop."""
    for _ in range(100):
        await asyncio.sleep(0)


async def watch(pulls, source, key="m", seen=None):
    seen = [] if seen is None else seen
    async with aclosing(pulls.watch(key, source.pull)) as statuses:
        async for progress in statuses:
            seen.append((progress.status, progress.completed))
    return seen


def test_two_share_one_pull_and_see_the_same():
    async def run():
        pulls, source = SharedPulls(), Source()
        first = asyncio.create_task(watch(pulls, source))
        await settle()
        second = asyncio.create_task(watch(pulls, source))
        await settle()
        source.may_go_on.set()
        expected = [("pulling manifest", None), ("pulling x", 2), ("success", None)]
        assert await second == await first == expected
        assert (source.num_begun, source.num_ended) == (1, 1)
        assert await watch(pulls, source) == expected  # a later one begins anew
        assert source.num_begun == 2

    asyncio.run(run())


def test_one_who_goes_does_not_end_it_and_the_last_one_does():
    async def run():
        pulls, source = SharedPulls(), Source()
        seen = []
        first, second = (asyncio.create_task(watch(pulls, source, seen=list_)) for list_ in ([], seen))
        await settle()
        first.cancel()
        await asyncio.wait({first})
        assert source.num_ended == 0
        second.cancel()
        third = asyncio.create_task(watch(pulls, source))
        await asyncio.wait({second})
        assert (source.num_begun, source.num_ended) == (2, 1)  # the new one does not join what is being ended
        source.may_go_on.set()
        assert (await third)[-1] == ("success", None)

    asyncio.run(run())


def test_all_are_told_why_it_failed():
    async def run():
        pulls, source = SharedPulls(), Source(PullError("no such package"))
        tasks = [asyncio.create_task(watch(pulls, source)) for _ in range(2)]
        await settle()
        source.may_go_on.set()
        for task in tasks:
            with pytest.raises(PullError, match="no such package"):
                await task

    asyncio.run(run())


def test_only_a_few_run_at_once():
    async def run():
        pulls, source = SharedPulls(), Source()
        seen = []
        tasks = [asyncio.create_task(watch(pulls, source, key)) for key in range(MAX_AT_ONCE)]
        await settle()
        tasks.append(asyncio.create_task(watch(pulls, source, "last", seen)))
        await settle()
        assert source.num_begun == MAX_AT_ONCE
        assert seen == [("waiting for other pulls", None)]
        source.may_go_on.set()
        await asyncio.gather(*tasks)
        assert source.num_begun == MAX_AT_ONCE + 1

    asyncio.run(run())
