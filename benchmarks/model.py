"""The model that is measured when no file is given."""

from __future__ import annotations

import asyncio
from pathlib import Path

from puna.registry import ModelName, ModelNotFound, Store
from puna.registry.pull import pull

DEFAULT = "smollm2:135m"


def default_model() -> Path:
    """The file of the default model in the user's store, pulled first if it is not there."""
    store, name = Store.default(), ModelName.parse(DEFAULT)
    try:
        return store.find(name).model_path
    except ModelNotFound:
        asyncio.run(_pull(store))
        return store.find(name).model_path


async def _pull(store: Store) -> None:
    async for progress in pull(store, DEFAULT):
        if progress.completed is None:
            print(f"{DEFAULT}: {progress.status}")
