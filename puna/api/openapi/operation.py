"""What a route takes and gives, for those who cannot read its code."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

NDJSON = "application/x-ndjson"
EVENTS = "text/event-stream"

OF_EVERY_ROUTE = (403, 500, 503)
"""Another site's page, or host; what went wrong here; too many requests."""
OF_BODIES = (400, 413, 415)
OF_MODELS = (400, 404)
"""A name that is none, and a model that is not there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """reply: type of the JSON that is given, or of an object of its stream; None: there is no body.

    media: what a reply without type is. streams: media type of the reply in pieces, where clients can have
    it so. errors: statuses besides those that every route, and every route with a body, has.
    """

    body: Any = None
    raw_body: bool = False
    """The body is bytes."""
    reply: Any = None
    media: str = ""
    streams: str = ""
    success: tuple[int, ...] = (200,)
    errors: tuple[int, ...] = ()
    query: dict[str, Any] = field(default_factory=dict)
    """Parameters that may be left out, by name: their types."""

    @property
    def statuses(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Of replies, and of errors."""
        of_body = OF_BODIES if self.body is not None else ()
        return self.success, tuple(sorted({*OF_EVERY_ROUTE, *of_body, *self.errors}))


def of_model(body: Any, reply: Any = None, **fields: Any) -> Operation:
    """On a model that the body names."""
    return Operation(body=body, reply=reply, errors=OF_MODELS, **fields)
