"""Opens models' files, so that no descriptor is lost when the request is cancelled."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from puna.backends.base import ModelSource
from puna.registry import ModelEntry
from puna.registry.in_thread import in_thread


async def open_model(model: ModelEntry) -> ModelSource:
    """For the caller to close. Raises MissingBlob, StoreError."""
    return await _opened(model, model.open)


async def open_adapter(model: ModelEntry) -> ModelSource:
    """The same, of the adapter of a model that has one."""
    return await _opened(model, model.open_adapter)


async def open_projector(model: ModelEntry) -> ModelSource:
    """The same, of the projector of a model that has one."""
    return await _opened(model, model.open_projector)


async def _opened(model: ModelEntry, open_file: Callable[[], int]) -> ModelSource:
    descriptor = await in_thread(lambda _: open_file(), os.close)
    return ModelSource(model.name.short, (descriptor,))


@asynccontextmanager
async def opened_model(model: ModelEntry) -> AsyncIterator[ModelSource]:
    """The same, closed at the end."""
    source = await open_model(model)
    try:
        yield source
    finally:
        source.close()
