"""What chat completions and completions share: server-sent events."""

from __future__ import annotations

from puna.api.errors import ApiError
from puna.api.openai.choices import Choices
from puna.api.openai.errors import openai_error_body
from puna.api.openai.objects import Head
from puna.api.replying.events import Event, Finish


def sse(data: bytes) -> bytes:
    """One server-sent event."""
    return b"data: " + data + b"\n\n"


class SseFraming:
    """The part of a Framing that does not depend on what is completed."""

    media_type = "text/event-stream"

    def __init__(self, head: Head, choices: Choices, *, include_usage: bool) -> None:
        """include_usage: at the end of a stream; a whole reply always has it."""
        self._head = head
        self._choices = choices
        self._include_usage = include_usage
        self._finishes: list[Finish] = []  # of a stream

    def is_whole(self, first: Event) -> bool:  # noqa: ARG002
        return False

    def end(self) -> bytes:
        usage = (
            sse(self._head.encode([], self._choices.usage(self._finishes))) if self._include_usage else b""
        )
        return usage + sse(b"[DONE]")

    def error_frame(self, error: ApiError) -> bytes:
        return sse(openai_error_body(error))

    def error_body(self, error: ApiError) -> bytes:
        return openai_error_body(error)
