"""Who may talk to the server: Host and Origin, so that no web page reaches a local daemon unasked; users of a
Unix socket.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterable

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from puna.api.connection_facts import connection_facts

_LOCAL_ORIGINS = tuple(
    f"{scheme}://{host}" for scheme in ("http", "https") for host in ("localhost", "127.0.0.1", "0.0.0.0")
)
DEFAULT_ORIGINS = (
    *_LOCAL_ORIGINS,
    *(f"{origin}:*" for origin in _LOCAL_ORIGINS),
    *(f"{scheme}://*" for scheme in ("app", "file", "tauri", "vscode-webview", "vscode-file")),
)

_STAINLESS = "arch async custom-poll-interval helper-method lang os package-version poll-helper retry-count"
_ALLOWED_HEADERS = ", ".join(
    [
        *("Authorization", "Content-Type", "User-Agent", "Accept", "X-Requested-With", "OpenAI-Beta"),
        *("x-api-key", "anthropic-version", "anthropic-beta", "anthropic-dangerous-direct-browser-access"),
        *(f"x-stainless-{name}" for name in [*_STAINLESS.split(), "runtime", "runtime-version", "timeout"]),
    ]
)
_PREFLIGHT_HEADERS = {
    "Access-Control-Allow-Methods": "GET, POST, PUT, PATCH, DELETE, HEAD, OPTIONS",
    "Access-Control-Allow-Headers": _ALLOWED_HEADERS,
    "Access-Control-Max-Age": "43200",
}


class Cors:
    """Answers preflights and marks replies for allowed origins; any other origin gets an empty 403.

    So does what a page of another site has a browser fetch without saying where it comes from: images,
    scripts, forms. To follow a link to `/` is allowed.
    """

    def __init__(self, app: ASGIApp, *, origins: Iterable[str] = ()) -> None:
        """origins: allowed besides the default ones; `*` in one stands for anything."""
        self._app = app
        patterns = [*DEFAULT_ORIGINS, *origins]
        self._allow_all = "*" in patterns
        self._allowed = re.compile("|".join(map(_wildcard, patterns)), re.IGNORECASE)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or connection_facts(scope).is_unix:
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        origin, host = headers.get("origin"), headers.get("host", "")
        if not origin and _is_of_a_foreign_page(scope, headers):
            await Response(status_code=403)(scope, receive, send)
        elif not origin or origin in (f"http://{host}", f"https://{host}"):
            await self._app(scope, receive, send)
        elif not self._allowed.fullmatch(origin):
            await Response(status_code=403)(scope, receive, send)
        elif scope["method"] == "OPTIONS":
            reply = Response(status_code=204, headers=_PREFLIGHT_HEADERS)
            if headers.get("access-control-request-private-network") == "true":
                reply.headers["Access-Control-Allow-Private-Network"] = "true"
            self._mark(reply.headers, origin)
            await reply(scope, receive, send)
        else:
            await self._app(scope, receive, self._marking(send, origin))

    def _mark(self, headers: MutableHeaders, origin: str) -> None:
        headers["Access-Control-Allow-Origin"] = "*" if self._allow_all else origin
        if not self._allow_all:
            headers.add_vary_header("Origin")

    def _marking(self, send: Send, origin: str) -> Send:
        async def marked(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._mark(MutableHeaders(scope=message), origin)
            await send(message)

        return marked


class PeerGuard:
    """On a Unix socket: this user and root, whoever may open the file; others get an empty 403."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_allowed = scope["type"] != "http" or connection_facts(scope).is_trusted
        await (self._app if is_allowed else Response(status_code=403))(scope, receive, send)


class HostGuard:
    """Turns away requests whose Host header a foreign web page could have chosen (DNS rebinding).

    Only for a server bound to a loopback address: others are meant to be reached from elsewhere.
    """

    def __init__(self, app: ASGIApp, *, bind_address: str) -> None:
        self._app = app
        self._active = _is_loopback(bind_address)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not self._active or connection_facts(scope).is_unix:
            await self._app(scope, receive, send)
            return
        host = _without_port(Headers(scope=scope).get("host", ""))
        if _is_own_address(host):
            await self._app(scope, receive, send)
        elif not _is_local_name(host):
            await Response(status_code=403)(scope, receive, send)
        elif scope["method"] == "OPTIONS":
            await Response(status_code=204)(scope, receive, send)
        else:
            await self._app(scope, receive, send)


def _is_of_a_foreign_page(scope: Scope, headers: Headers) -> bool:
    if headers.get("sec-fetch-site") not in ("cross-site", "same-site"):
        return False
    is_link = headers.get("sec-fetch-mode") == "navigate" and scope["method"] == "GET"
    return not (is_link and scope["path"] == "/")


def _wildcard(pattern: str) -> str:
    return ".*".join(re.escape(part) for part in pattern.split("*"))


def _without_port(host: str) -> str:
    if bracketed := re.fullmatch(r"\[([^\]]*)\](?::\d*)?", host):
        return bracketed[1]
    name, colon, port = host.rpartition(":")
    return name if colon and ":" not in name and (not port or port.isdecimal()) else host


def _is_local_name(host: str) -> bool:
    name = host.lower()
    own_names = ("", "localhost", socket.gethostname().lower())
    return name in own_names or name.endswith((".localhost", ".local", ".internal"))


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address.lower() == "localhost"


def _is_own_address(host: str) -> bool:
    """Whether `host` is a literal IP that cannot belong to a foreign site."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return address.is_loopback or address.is_private or address.is_unspecified or _can_bind(address)


def _can_bind(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    """Whether a network interface of this machine has the address: only then can a socket be bound to it."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((str(address), 0))
    except OSError:
        return False
    return True
