"""How a reply is to be read; a prompt says it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from puna.chat.replies.families.registry import FAMILIES
from puna.chat.replies.pieces import CallParser, Piece, ReplyParser
from puna.chat.replies.thinking import ThinkingParser
from puna.chat.tools import Tool


class ReplyFormat(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A reply without thoughts, tags and calls is the default."""

    family: str = "plain"
    """In puna.chat.replies.families."""
    may_think: bool = False
    """Whether thoughts are told from the answer."""
    starts_thinking: bool = False
    """The prompt ends within thoughts."""
    shows_thoughts: bool = False
    """Whether anybody wants to see them."""
    may_call: bool = False
    """Tools were offered."""


def reply_parser(form: ReplyFormat, tools: Sequence[Tool]) -> ReplyParser:
    """tools: those that were offered."""
    family = FAMILIES[form.family]
    wants_calls = form.may_call or family.thinking is None
    calls = family.new_parser(tools) if wants_calls else FAMILIES["plain"].new_parser(tools)
    if family.thinking is None or not form.may_think:
        return calls
    return _ThinkingReply(ThinkingParser(family.thinking, started=form.starts_thinking), calls)


class _ThinkingReply:
    """Thoughts, then what may have calls."""

    def __init__(self, thoughts: ThinkingParser, calls: CallParser) -> None:
        self._thoughts = thoughts
        self._calls = calls

    def add(self, text: str) -> Piece:
        return self._behind_thoughts(self._thoughts.add(text))

    def flush(self) -> Piece:
        piece = self._behind_thoughts(self._thoughts.flush())
        return piece + self._calls.flush()

    def _behind_thoughts(self, piece: Piece) -> Piece:
        return Piece(thinking=piece.thinking) + self._calls.add(piece.content)
