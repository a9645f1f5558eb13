"""Models that write no tool calls."""

from __future__ import annotations

from collections.abc import Sequence

from puna.chat.grammars.builder import GrammarBuilder
from puna.chat.grammars.task import ReplyTask
from puna.chat.replies.families.family import Family
from puna.chat.replies.pieces import Piece
from puna.chat.tools import Tool


class PlainParser:
    """All is content."""

    def add(self, text: str) -> Piece:
        return Piece(content=text)

    def flush(self) -> Piece:
        return Piece()


def _new_parser(tools: Sequence[Tool]) -> PlainParser:  # noqa: ARG001
    return PlainParser()


def _grammar(g: GrammarBuilder, task: ReplyTask) -> str:
    return f"{g.thoughts(task)} {g.text() if task.answer is None else task.answer}"


PLAIN = Family(name="plain", recognizes=lambda source: False, new_parser=_new_parser, grammar=_grammar)  # noqa: ARG005
