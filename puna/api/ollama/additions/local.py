"""GET /api/local: models that other programs keep on this machine, which can be used in place."""

from __future__ import annotations

import asyncio
import os
from datetime import datetime
from pathlib import Path

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from puna.api.context import context_of
from puna.api.replying.replies import json_response
from puna.registry.local.local_directory import LocalDirectory


class ListedLocalModel(msgspec.Struct):
    """An entry of GET /api/local."""

    name: str
    digest: str
    """Not of the content: it changes with the file."""
    size: int
    modified_at: datetime
    source: str
    """The program."""
    files: list[str]
    """More than one for a split file, the first part first, and for a directory."""
    directory: str = ""
    """Of safetensors."""


async def list_local(request: Request) -> Response:
    """GGUF files and directories of safetensors, by the names under which they can be run."""
    models = await asyncio.to_thread(context_of(request).runtime.store.local.find_all)
    listed = [
        ListedLocalModel(
            name=model.name.short,
            digest=model.digest,
            size=model.size,
            modified_at=model.modified_at,
            source=model.source,
            files=[_shown(path) for path in model.paths],
            directory=_shown(model.model_path) if isinstance(model, LocalDirectory) else "",
        )
        for model in models
    ]
    return json_response({"models": listed})


def _shown(path: Path) -> str:
    return os.fsencode(path).decode(errors="replace")
