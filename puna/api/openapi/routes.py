"""GET /openapi.json and /docs."""

from __future__ import annotations

import asyncio
from pathlib import Path

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from puna.api.openapi.document import openapi_document
from puna.api.replying.replies import json_response

_PAGE = Path(__file__).with_name("page.html")


async def document(request: Request) -> Response:
    """What this server offers: an OpenAPI document."""
    found = await asyncio.to_thread(openapi_document, request.app.state.routes)
    return json_response(found)


async def page(_: Request) -> Response:
    """The same, for people."""
    return HTMLResponse(await asyncio.to_thread(_PAGE.read_text))
