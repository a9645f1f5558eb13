"""Several streams as one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import TypeVar

T = TypeVar("T")


async def merge(streams: Sequence[AsyncGenerator[T, None]]) -> AsyncGenerator[T, None]:
    """The items of all streams as they come; those of one stay in their order.

    The streams begin in their order. The first error of one is raised and ends all. Closes all on every path.
    """
    if len(streams) == 1:  # the usual case needs no task
        async with aclosing(streams[0]) as stream:
            async for item in stream:
                yield item
        return
    arrived: asyncio.Queue[tuple[T] | Exception | None] = asyncio.Queue()
    tasks = [asyncio.create_task(_pump(stream, arrived)) for stream in streams]
    try:
        num_running = len(tasks)
        while num_running:
            match await arrived.get():
                case (item,):
                    yield item
                case None:
                    num_running -= 1
                case Exception() as error:
                    raise error
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        for stream in streams:  # of a task that was cancelled before its first step, nothing has run
            await stream.aclose()


async def _pump(stream: AsyncGenerator[T, None], arrived: asyncio.Queue[tuple[T] | Exception | None]) -> None:
    """Puts items, then None or what the stream raised."""
    try:
        async with aclosing(stream):
            async for item in stream:
                arrived.put_nowait((item,))
    except Exception as error:
        arrived.put_nowait(error)
    else:
        arrived.put_nowait(None)
