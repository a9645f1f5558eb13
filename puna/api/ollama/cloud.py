"""What Ollama's clients ask of its cloud: there is none here, as with Ollama when that is switched off."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from puna.api.errors import ApiError
from puna.api.replies import json_response


async def status(_: Request) -> Response:
    """GET /api/status."""
    return json_response({"cloud": {"disabled": True, "source": "config"}})


async def me(_: Request) -> Response:
    """POST /api/me: nobody is signed in, and cannot."""
    raise ApiError(401, "unauthorized")


async def sign_out(_: Request) -> Response:
    """POST /api/signout."""
    raise ApiError(401, "you are not currently signed in")


async def web_search(_: Request) -> Response:
    """POST /api/experimental/web_search."""
    raise ApiError(403, "ollama cloud is disabled: web search is unavailable")


async def web_fetch(_: Request) -> Response:
    """POST /api/experimental/web_fetch."""
    raise ApiError(403, "ollama cloud is disabled: web fetch is unavailable")


async def recommendations(_: Request) -> Response:
    """GET /api/experimental/model-recommendations."""
    return json_response({"recommendations": []})
