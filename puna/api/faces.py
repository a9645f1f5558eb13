"""A face is one protocol: its routes, and how its errors look, whoever finds them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from puna.api.connection_facts import connection_facts
from puna.api.context import context_of
from puna.api.errors import ApiError, to_api_error
from puna.api.openapi.operation import Operation

Handler = Callable[[Request], Awaitable[ASGIApp]]

_CROWDED = ApiError(503, "server busy, please try again.  too many requests at once", retry_after_s=1)
_PLAIN = {404: "404 page not found", 405: "405 method not allowed"}


@dataclass(frozen=True, slots=True)
class Face:
    """One protocol."""

    name: str
    prefix: str
    """What the paths of its own begin with, those at which nothing is as well."""
    error_reply: Callable[[ApiError], Response]
    error: type
    """What an error's reply holds."""
    has_plain_404: bool = False
    """Unknown paths and methods are answered in plain text, as Ollama does."""

    def get(self, path: str, handler: Handler, reply: Any = None, **operation: Any) -> Route:
        """A route without a body, and what Operation says of it. Starlette lets HEAD in wherever GET is."""
        return self.route("GET", path, handler, Operation(reply=reply, **operation))

    def post(self, path: str, handler: Handler, operation: Operation) -> Route:
        return self.route("POST", path, handler, operation)

    def route(self, method: str, path: str, handler: Handler, operation: Operation) -> Route:
        """operation: what it takes and gives."""
        return Route(path, Endpoint(self, handler, operation), methods=[method], name=path)

    def reply_to(self, error: Exception) -> Response:
        """What a client of this face is told."""
        return self.error_reply(to_api_error(error))

    def reply_to_unknown(self, status: int, request: Request) -> Response:
        """404 or 405."""
        if self.has_plain_404:
            return PlainTextResponse(_PLAIN.get(status, HTTPStatus(status).phrase), status)
        what = f"{request.method} {request.url.path}"
        return self.reply_to(ApiError(status, f"{what}: {HTTPStatus(status).phrase.lower()}"))


class Endpoint:
    """The ASGI application of one route. A request's share of the budget is held until its reply is sent."""

    def __init__(self, face: Face, handler: Handler, operation: Operation) -> None:
        self.face = face
        self.handler = handler
        self.operation = operation

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive, send)
        with context_of(request).bodies.share() as share:
            request.state.share = share
            try:
                if connection_facts(scope).is_crowded:
                    raise _CROWDED
                reply = await self.handler(request)
            except Exception as error:  # the request's boundary: every error becomes an answer
                reply = self.face.reply_to(error)
            await reply(scope, receive, send)
