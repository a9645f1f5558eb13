"""Several streams as one: everything arrives, errors end all, and nothing is left open."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest

from puna.api.replying.merging import merge

pytestmark = pytest.mark.unit


class Streams:
    """Makes streams, and knows which of them have begun and which are open."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.open: set[str] = set()

    async def stream(self, name, items, *, error=None, hangs=False):
        self.begun.append(name)
        self.open.add(name)
        try:
            for item in items:
                await asyncio.sleep(0)
                yield name, item
            if hangs:
                await asyncio.Event().wait()
            if error:
                raise error
        finally:
            await asyncio.sleep(0)  # cleanup may take its time
            self.open.discard(name)


async def collect(streams):
    async with aclosing(merge(streams)) as merged:
        return [item async for item in merged]


@pytest.mark.parametrize("lengths", [[3], [3, 0, 5], [0, 0], [1] * 20])
def test_everything_arrives_once_and_each_stream_in_its_order(lengths):
    streams = Streams()
    items = asyncio.run(collect([streams.stream(str(n), range(k)) for n, k in enumerate(lengths)]))
    for number, length in enumerate(lengths):
        assert [item for name, item in items if name == str(number)] == list(range(length))
    assert len(items) == sum(lengths)
    assert streams.begun == [str(n) for n in range(len(lengths))]
    assert not streams.open


def test_streams_run_at_the_same_time():
    streams = Streams()
    items = asyncio.run(collect([streams.stream("a", range(3)), streams.stream("b", range(3))]))
    assert [name for name, _ in items] == ["a", "b"] * 3


def test_error_of_one_ends_all():
    streams = Streams()
    failing = streams.stream("b", [1], error=KeyError("broken"))

    async def main():
        merged = merge([streams.stream("a", [1], hangs=True), failing, streams.stream("c", range(1000))])
        with pytest.raises(KeyError, match="broken"):
            async for _ in merged:
                pass
        assert not streams.open

    asyncio.run(main())
    assert streams.begun == ["a", "b", "c"]


@pytest.mark.parametrize("count", [1, 3])
def test_closing_closes_all(count):
    streams = Streams()

    async def main():
        merged = merge([streams.stream(str(n), [1], hangs=True) for n in range(count)])
        await anext(merged)
        await merged.aclose()
        assert not streams.open

    asyncio.run(main())


@pytest.mark.parametrize("count", [1, 3])
def test_cancelling_closes_all(count):
    streams = Streams()

    async def main():
        task = asyncio.create_task(collect([streams.stream(str(n), [], hangs=True) for n in range(count)]))
        while len(streams.open) < count:  # noqa: ASYNC110
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not streams.open

    asyncio.run(main())
