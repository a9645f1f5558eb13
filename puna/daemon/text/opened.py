"""The text side of a stored model, for who needs nothing else of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from puna.daemon.opening import ModelOpener
from puna.daemon.text.model import TextModel
from puna.daemon.text.pool import TextPool
from puna.registry import ModelEntry
from puna.tokenizer.errors import TokenizerError


@asynccontextmanager
async def opened_text(opener: ModelOpener, pool: TextPool, model: ModelEntry) -> AsyncIterator[TextModel]:
    """Raises GgufError, TokenizerError, ModelLoadError, MissingBlob, StoreError, WorkerDied."""
    async with opener.opened(model) as source:
        text = await pool.open_model(source)
    try:
        if text.side.is_stand_in:
            raise TokenizerError(f"{model.name.short}: {text.side.unknown}")
        yield text
    finally:
        pool.close_model(text)
