"""Each request has an id: in its reply, in log lines about it, and, if asked for, in a line of its own."""

from __future__ import annotations

import logging
import re
import secrets
import time

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from puna.api.observability.http_counts import CLIENT_GONE
from puna.daemon.request_context import REQUEST_ID

log = logging.getLogger(__name__)

_HEADER = "x-request-id"
_SANE = re.compile(r"[A-Za-z0-9._:/+=@-]{1,64}")
_NUM_BYTES = 8


class IdentifyRequests:
    """Middleware: takes the id of X-Request-Id if it is one, else makes one.

    logs_access: whether each request has a line in the log.
    """

    def __init__(self, app: ASGIApp, *, logs_access: bool) -> None:
        self._app = app
        self._logs_access = logs_access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = Headers(scope=scope).get(_HEADER, "")
        request_id = given if _SANE.fullmatch(given) else secrets.token_hex(_NUM_BYTES)
        # It stays: the task ends with the request, and what is logged after us is about it, too.
        REQUEST_ID.set(request_id)
        start_s, status = time.monotonic(), CLIENT_GONE

        async def identified(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = [*message.get("headers", ()), (_HEADER.encode(), request_id.encode())]
                message = {**message, "headers": headers}
            await send(message)

        try:
            await self._app(scope, receive, identified)
        finally:
            if self._logs_access:
                _log_access(scope, status, time.monotonic() - start_s)


def _log_access(scope: Scope, status: int, seconds: float) -> None:
    client = scope.get("client")
    access = {
        "method": scope["method"],
        "path": scope["path"],
        "status": status,
        "duration_ms": round(seconds * 1000, 3),
        "client": client[0] if client else "",
    }
    log.info("%d %s %s in %.3f s", status, scope["method"], scope["path"], seconds, extra={"access": access})
