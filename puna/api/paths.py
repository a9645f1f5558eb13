"""Which route a request's path leads to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from starlette.routing import BaseRoute, Match, Route
from starlette.types import Receive, Scope, Send


class RoutesByPath(BaseRoute):
    """All routes as one. Those without parameters are looked up instead of being tried in turn."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self._by_path: dict[str, list[Route]] = {}
        self._with_parameters: list[Route] = []
        for route in routes:
            if route.param_convertors:
                self._with_parameters.append(route)
            else:
                self._by_path.setdefault(route.path, []).append(route)

    def template(self, scope: Scope) -> str | None:
        """The path of the route, such as /api/blobs/{digest}, whatever the method; None: there is none."""
        return next((route.path for route, _, _ in self._matching(scope)), None)

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """As Starlette's router chooses among routes: the first whose method fits, else the first."""
        best: tuple[Match, Scope] = (Match.NONE, {})
        for route, match, child_scope in self._matching(scope):
            if match is Match.FULL:
                return match, {**child_scope, "route": route}
            if best[0] is Match.NONE:
                best = match, {**child_scope, "route": route}
        return best

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """HTTPException (405) for another method than the path's."""
        await scope["route"].handle(scope, receive, send)

    def _matching(self, scope: Scope) -> Iterator[tuple[Route, Match, Scope]]:
        for route in (*self._by_path.get(scope["path"], ()), *self._with_parameters):
            match, child_scope = route.matches(scope)
            if match is not Match.NONE:
                yield route, match, child_scope
