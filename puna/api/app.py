"""The HTTP application: the faces, the guards before them, and what is said when no route fits."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response

from puna.api.anthropic.routes import ANTHROPIC, ANTHROPIC_ROUTES
from puna.api.bodies.body_budget import BodyBudget
from puna.api.context import ApiContext
from puna.api.guard import Cors, HostGuard, PeerGuard
from puna.api.inspection import Inspector
from puna.api.observability.http_counts import CountRequests
from puna.api.observability.identified import IdentifyRequests
from puna.api.ollama.routes import ADDED_ROUTES, OLLAMA, OLLAMA_ROUTES
from puna.api.openai.routes import OPENAI, OPENAI_ROUTES
from puna.api.paths import RoutesByPath
from puna.daemon.runtime import Runtime

ROUTES = [*OLLAMA_ROUTES, *ADDED_ROUTES, *OPENAI_ROUTES, *ANTHROPIC_ROUTES]
_FACES = (ANTHROPIC, OPENAI, OLLAMA)  # the first one whose prefix fits; everything begins with Ollama's


def create_app(runtime: Runtime) -> Starlette:
    """All HTTP faces of one runtime, which the caller starts and closes."""
    settings = runtime.settings
    context = ApiContext(
        runtime,
        Inspector(runtime.text, runtime.opener, settings.prefers_go_template),
        BodyBudget(settings.max_body_bytes),
    )
    routes = RoutesByPath(ROUTES)
    app = Starlette(
        routes=[routes],
        middleware=[
            Middleware(IdentifyRequests, logs_access=settings.access_log),
            Middleware(CountRequests, counts=context.http_counts, routes=routes),
            Middleware(PeerGuard),
            Middleware(Cors, origins=settings.origins),
            Middleware(HostGuard, bind_address=settings.host.address),
        ],
        exception_handlers={HTTPException: _no_route},
    )
    app.router.redirect_slashes = False
    app.state.context = context
    app.state.routes = ROUTES
    return app


async def _no_route(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    path = request.scope["path"]
    face = next(face for face in _FACES if path.startswith(face.prefix))
    reply = face.reply_to_unknown(error.status_code, request)
    reply.headers.update(error.headers or {})
    return reply
