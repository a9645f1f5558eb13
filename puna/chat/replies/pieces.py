"""What comes out of a reply's text."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import msgspec


class Call(NamedTuple):
    """A tool call that is complete."""

    name: str
    arguments: dict[str, Any]


class Piece(msgspec.Struct, frozen=True):
    """New text of both kinds, and calls that are complete now, behind the content; any may be empty."""

    thinking: str = ""
    content: str = ""
    calls: tuple[Call, ...] = ()

    def __add__(self, other: Piece) -> Piece:
        return Piece(self.thinking + other.thinking, self.content + other.content, self.calls + other.calls)


class ReplyParser(Protocol):
    """Text goes in as it comes. Nothing of a tag or of a call ever comes out as text, in any split of the
    stream: what may become one is held back.
    """

    def add(self, text: str) -> Piece:
        """What is certain now."""

    def flush(self) -> Piece:
        """What was held back, at the end of the reply. A call that is not complete is lost."""
