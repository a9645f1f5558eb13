"""What the server says about the connection that a request came on."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.types import Scope


@dataclass(frozen=True, slots=True)
class ConnectionFacts:
    """By default: a connection of which nothing is known, such as a test's."""

    is_unix: bool = False
    is_trusted: bool = True
    """Whoever is at the other end of a Unix socket is this user or root."""
    is_crowded: bool = False
    """Too many requests are being answered."""


_UNKNOWN = ConnectionFacts()


def connection_facts(scope: Scope) -> ConnectionFacts:
    """See puna.http.connection."""
    facts = scope.get("extensions", {}).get("puna")
    if facts is None:
        return _UNKNOWN
    return ConnectionFacts(facts["peer"].is_unix, facts["peer"].is_trusted, facts["is_crowded"])
