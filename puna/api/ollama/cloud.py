"""What Ollama's clients ask of its cloud: there is none here, as with Ollama when that is switched off."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from puna.api.errors import ApiError
from puna.api.replying.replies import json_response


async def status(_: Request) -> Response:
    """Whether there is a cloud."""
    return json_response({"cloud": {"disabled": True, "source": "config"}})


async def me(_: Request) -> Response:
    """Nobody is signed in, and nobody can."""
    raise ApiError(401, "unauthorized")


async def sign_out(_: Request) -> Response:
    """Nobody is signed in."""
    raise ApiError(401, "you are not currently signed in")


async def web_search(_: Request) -> Response:
    """Refused."""
    raise ApiError(403, "ollama cloud is disabled: web search is unavailable")


async def web_fetch(_: Request) -> Response:
    """Refused."""
    raise ApiError(403, "ollama cloud is disabled: web fetch is unavailable")


async def recommendations(_: Request) -> Response:
    """None."""
    return json_response({"recommendations": []})
