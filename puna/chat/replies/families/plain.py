"""Models that write no tool calls."""

from __future__ import annotations

from puna.chat.grammars.builder import GrammarBuilder
from puna.chat.grammars.task import ReplyTask
from puna.chat.replies.families.family import Family
from puna.chat.replies.tagged import tagged


def _grammar(g: GrammarBuilder, task: ReplyTask) -> str:
    return f"{g.thoughts(task)} {g.text() if task.answer is None else task.answer}"


PLAIN = Family(name="plain", recognizes=lambda source: False, new_parser=tagged(), grammar=_grammar)  # noqa: ARG005
