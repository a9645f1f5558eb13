"""What OpenAI's API has and no model here can do."""

from __future__ import annotations

from typing import NoReturn

from starlette.requests import Request

from puna.api.errors import ApiError


async def audio(request: Request) -> NoReturn:  # noqa: ARG001
    """Transcriptions, translations and speech."""
    raise ApiError(400, "audio is not supported: no model here hears or speaks")


async def images(request: Request) -> NoReturn:  # noqa: ARG001
    """Generations, edits and variations."""
    raise ApiError(400, "images are not supported: no model here draws")
