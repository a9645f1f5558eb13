"""Grammars of whole replies, made of what a client asks for."""

from __future__ import annotations

from typing import Any

import pytest

from puna.chat.errors import PromptError
from puna.chat.grammars.answer import JsonAnswer, SchemaAnswer
from puna.chat.grammars.composition import reply_grammar
from puna.chat.replies.families.registry import FAMILIES
from puna.chat.replies.reply_format import ReplyFormat
from puna.chat.tools import Tool, ToolChoice, ToolFunction

pytestmark = pytest.mark.unit


class NoControlTokens:
    def find_control(self, _text: str) -> int | None:
        return None


def composed(*tools: Tool, answer: Any = None, choice: ToolChoice = ToolChoice()) -> str:  # noqa: B008
    form = ReplyFormat(family="hermes", may_call=bool(tools))
    return reply_grammar(FAMILIES["hermes"], form, tools, choice, answer, NoControlTokens())  # type: ignore[arg-type]


def tool(name: str, *, strict: bool = False, **properties: Any) -> Tool:
    return Tool(ToolFunction(name, parameters={"type": "object", "properties": properties}, strict=strict))


def test_an_answer_needs_no_tools():
    assert "%json" in composed(answer=JsonAnswer(), choice=ToolChoice("none"))


def test_very_many_tools_are_held_to_the_names_of_their_parameters():
    kinds = {"enum": [f"kind number {i}" for i in range(40)]}
    grammar = composed(*(tool(f"tool_{i}", first=kinds, second=kinds) for i in range(300)))
    assert "kind number" not in grammar
    assert grammar.count('"second"') == 300


def test_strict_tools_are_held_to_all_that_they_say_or_refused():
    with pytest.raises(PromptError, match="'not'"):
        composed(tool("f", strict=True, x={"not": {}}))
    assert composed(tool("f", x={"not": {}}))


def test_an_answer_that_cannot_be_is_refused_beside_tools_too():
    with pytest.raises(PromptError, match="'contains'"):
        composed(tool("f", x={}), answer=SchemaAnswer({"type": "array", "contains": {"const": 1}}))
