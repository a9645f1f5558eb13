"""Work that would block the event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def in_thread(
    function: Callable[[threading.Event], T], release: Callable[[T], object] | None = None
) -> T:
    """Runs a blocking function. If cancelled, sets the event and waits until the function has cleaned up.

    release: for what the function has acquired all the same, and nobody is left to take.
    """
    cancelled = threading.Event()
    task = asyncio.ensure_future(asyncio.to_thread(function, cancelled))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        cancelled.set()
        await asyncio.wait({task})
        # Its error is retrieved, so that asyncio does not report it as forgotten.
        if task.exception() is None and release is not None:
            release(task.result())
        raise
