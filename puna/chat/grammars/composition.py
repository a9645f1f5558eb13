"""From what a client asks for to the grammar of a reply."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from puna.chat.errors import PromptError
from puna.chat.grammars.answer import AnswerFormat, JsonAnswer, LarkAnswer, RegexAnswer, SchemaAnswer
from puna.chat.grammars.builder import GrammarBuilder
from puna.chat.grammars.task import ReplyTask
from puna.chat.tools import Tool, ToolChoice

if TYPE_CHECKING:
    from puna.chat.replies.families.family import Family
    from puna.chat.replies.reply_format import ReplyFormat
    from puna.tokenizer import Tokenizer


def offered_tools(tools: Sequence[Tool], choice: ToolChoice) -> list[Tool]:
    """Those that may be called. Raises PromptError for a choice of a tool that there is not."""
    if choice.mode == "none":
        return []
    known = {tool.function.name for tool in tools}
    for name in choice.names:
        if name not in known:
            raise PromptError(f"tool_choice names {name}, which is not among the tools")
    if choice.mode == "required" and not tools:
        raise PromptError("tool_choice asks for a call, but there are no tools")
    return [tool for tool in tools if not choice.names or tool.function.name in choice.names]


def reply_grammar(
    family: Family,
    form: ReplyFormat,
    tools: Sequence[Tool],
    choice: ToolChoice,
    answer: AnswerFormat | None,
    tokenizer: Tokenizer,
) -> str:
    """tools: those that may be called. Empty if the family's replies cannot be held to a grammar. Raises
    PromptError for what cannot be a grammar.
    """
    if family.grammar is None:
        return ""
    builder = GrammarBuilder(tokenizer.find_control)
    task = ReplyTask(
        tools=tools,
        must_call=choice.mode == "required",
        parallel=choice.parallel,
        answer=_answer_term(builder, answer),
        thinking=family.thinking if form.may_think else None,
        starts_thinking=form.starts_thinking,
    )
    return builder.grammar(family.grammar(builder, task))


def _answer_term(builder: GrammarBuilder, answer: AnswerFormat | None) -> str | None:
    match answer:
        case None:
            return None
        case JsonAnswer():
            return builder.schema({"type": "object"})
        case SchemaAnswer(schema):
            return builder.schema(schema)
        case RegexAnswer(pattern):
            return builder.regex(pattern)
        case LarkAnswer(grammar):
            return builder.lark(grammar)
