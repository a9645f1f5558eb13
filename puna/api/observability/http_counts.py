"""Counts of requests by route, for /metrics."""

from __future__ import annotations

from collections import Counter

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from puna.api.paths import RoutesByPath

OTHER_ROUTE = "other"
"""Paths that nothing is at: each as itself would let clients fill the memory."""
CLIENT_GONE = 499
"""Stands for the status of a reply that never began, as it does in the logs of proxies."""


class HttpCounts:
    """One per app. Routes are path templates, such as /api/blobs/{digest}."""

    def __init__(self) -> None:
        self.finished: Counter[tuple[str, int]] = Counter()
        """By route and status."""
        self.in_progress: Counter[str] = Counter()
        """By route, until the last byte of the reply is sent."""

    def copy(self) -> HttpCounts:
        """As it is now, for another thread."""
        copy = HttpCounts()
        copy.finished.update(self.finished)
        copy.in_progress.update(self.in_progress)
        return copy


class CountRequests:
    """Middleware that keeps the counts."""

    def __init__(self, app: ASGIApp, *, counts: HttpCounts, routes: RoutesByPath) -> None:
        self._app = app
        self._counts = counts
        self._routes = routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        route = self._routes.template(scope) or OTHER_ROUTE
        status = CLIENT_GONE

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        self._counts.in_progress[route] += 1
        try:
            await self._app(scope, receive, watched)
        except Exception:
            if status == CLIENT_GONE:
                status = 500  # Starlette replies to it outside of all middleware
            raise
        finally:
            self._counts.in_progress[route] -= 1
            self._counts.finished[route, status] += 1
