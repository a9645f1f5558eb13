"""Work that would block the event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def in_thread(function: Callable[[threading.Event], T]) -> T:
    """Runs a blocking function. If cancelled, sets the event and waits until the function has cleaned up."""
    cancelled = threading.Event()
    task = asyncio.ensure_future(asyncio.to_thread(function, cancelled))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        cancelled.set()
        await asyncio.wait({task})
        task.exception()  # retrieved, so that asyncio does not report it as forgotten
        raise
