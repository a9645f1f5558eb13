"""Replies that report on something that takes long: pull and create."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import msgspec

from puna.api.errors import ApiError
from puna.api.ollama.errors import ollama_error_body
from puna.api.replying.streaming import EventResponse
from puna.registry.progress import Progress


class ProgressFraming:
    """One status a line; as a whole, the last one."""

    media_type = "application/x-ndjson"

    def is_whole(self, first: Progress) -> bool:  # noqa: ARG002
        return False

    def frame(self, event: Progress) -> bytes:
        return msgspec.json.encode(event) + b"\n"

    def end(self) -> bytes:
        return b""

    def error_frame(self, error: ApiError) -> bytes:
        return ollama_error_body(error) + b"\n"

    def body(self, events: list[Progress]) -> bytes:
        return msgspec.json.encode(events[-1])

    def error_body(self, error: ApiError) -> bytes:
        return ollama_error_body(error)


def progress_response(events: AsyncGenerator[Progress, None], *, stream: bool) -> EventResponse[Progress]:
    """Runs `events` to the end; a client that goes away ends it."""
    return EventResponse(events, ProgressFraming(), stream=stream)
