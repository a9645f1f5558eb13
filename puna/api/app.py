"""The HTTP application: routes, guards, and what is said when no route fits."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

import puna
from puna.api.context import ApiContext
from puna.api.errors import KNOWN_ERRORS, native_error_body, to_api_error
from puna.api.guard import Cors, HostGuard
from puna.api.observability import routes as observability
from puna.api.observability.http_counts import CountRequests
from puna.api.ollama import blobs, create, generate, kv, listing, manage, pull, sessions, show
from puna.api.openai import chat, completions, models
from puna.api.openai.framing import openai_error_body
from puna.api.replies import JSON_MEDIA_TYPE, json_response
from puna.daemon.runtime import Runtime


def create_app(runtime: Runtime) -> Starlette:
    """All HTTP faces of one runtime, which the caller starts and closes."""
    settings = runtime.settings
    context = ApiContext(runtime)
    app = Starlette(
        routes=ROUTES,
        middleware=[
            Middleware(CountRequests, counts=context.http_counts, routes=ROUTES),
            Middleware(Cors, origins=settings.origins),
            Middleware(HostGuard, bind_address=settings.host.address),
        ],
        exception_handlers={
            HTTPException: _plain_error,
            Exception: _error,
            **dict.fromkeys(KNOWN_ERRORS, _error),
        },
    )
    app.router.redirect_slashes = False
    app.state.context = context
    return app


async def _root(_: Request) -> Response:
    return PlainTextResponse("Ollama is running")  # what clients look for


async def _version(_: Request) -> Response:
    return json_response({"version": puna.__version__})


async def _plain_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    text = {404: "404 page not found", 405: "405 method not allowed"}.get(error.status_code, error.detail)
    return PlainTextResponse(text, error.status_code, headers=error.headers)


async def _error(request: Request, error: Exception) -> Response:
    failure = to_api_error(error)
    encode = openai_error_body if request.scope["path"].startswith("/v1/") else native_error_body
    return Response(encode(failure), failure.status, media_type=JSON_MEDIA_TYPE)


# Starlette lets HEAD in wherever GET is.
ROUTES = [
    Route("/", _root),
    Route("/api/version", _version),
    Route("/metrics", observability.metrics),
    Route("/debug/trace", observability.trace),
    Route("/api/tags", listing.tags),
    Route("/api/ps", listing.ps),
    Route("/api/show", show.show, methods=["POST"]),
    Route("/api/generate", generate.generate, methods=["POST"]),
    Route("/api/chat", generate.chat, methods=["POST"]),
    Route("/api/pull", pull.pull, methods=["POST"]),
    Route("/api/create", create.create, methods=["POST"]),
    Route("/api/copy", manage.copy, methods=["POST"]),
    Route("/api/delete", manage.delete, methods=["DELETE"]),
    Route("/api/blobs/{digest}", blobs.probe, methods=["HEAD"]),
    Route("/api/blobs/{digest}", blobs.upload, methods=["POST"]),
    Route("/api/sessions", sessions.list_sessions),
    Route("/api/sessions", sessions.remove, methods=["DELETE"]),
    Route("/api/sessions/save", sessions.save, methods=["POST"]),
    Route("/api/sessions/load", sessions.load, methods=["POST"]),
    Route("/api/kv", kv.show),
    Route("/api/kv/limit", kv.limit, methods=["POST"]),
    Route("/api/kv/trim", kv.trim, methods=["POST"]),
    Route("/v1/models", models.list_models),
    Route("/v1/models/{model}", models.retrieve_model),
    Route("/v1/chat/completions", chat.chat_completions, methods=["POST"]),
    Route("/v1/completions", completions.completions, methods=["POST"]),
]
