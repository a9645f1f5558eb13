"""Opens models' files, so that no descriptor is lost when the request is cancelled."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from puna.backends.base import ModelSource
from puna.registry import ModelEntry


async def open_model(model: ModelEntry) -> ModelSource:
    """For the caller to close. Raises MissingBlob, StoreError."""
    return await _opened(model, model.open)


async def open_adapter(model: ModelEntry) -> ModelSource:
    """The same, of the adapter of a model that has one."""
    return await _opened(model, model.open_adapter)


async def _opened(model: ModelEntry, open_file: Callable[[], int]) -> ModelSource:
    opening = asyncio.ensure_future(asyncio.to_thread(open_file))
    try:
        descriptor = await asyncio.shield(opening)
    except asyncio.CancelledError:
        opening.add_done_callback(_close_opened)
        raise
    return ModelSource(model.name.short, (descriptor,))


@asynccontextmanager
async def opened_model(model: ModelEntry) -> AsyncIterator[ModelSource]:
    """The same, closed at the end."""
    source = await open_model(model)
    try:
        yield source
    finally:
        source.close()


def _close_opened(opening: asyncio.Future[int]) -> None:
    if not opening.cancelled() and opening.exception() is None:
        os.close(opening.result())
