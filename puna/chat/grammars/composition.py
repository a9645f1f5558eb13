"""From what a client asks for to the grammar of a reply."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import msgspec

from puna.chat.errors import PromptError
from puna.chat.grammars.answer import AnswerFormat, JsonAnswer, LarkAnswer, RegexAnswer, SchemaAnswer
from puna.chat.grammars.builder import GrammarBuilder
from puna.chat.grammars.lark import check_lark
from puna.chat.grammars.schemas.checking import without_details
from puna.chat.grammars.schemas.keywords import Rigour
from puna.chat.grammars.task import ReplyTask
from puna.chat.grammars.validation import check_grammar
from puna.chat.tools import Tool, ToolChoice

if TYPE_CHECKING:
    from puna.chat.replies.families.family import Family
    from puna.chat.replies.reply_format import ReplyFormat
    from puna.tokenizer import Tokenizer

_MAX_WANTED_BYTES = 1 << 20
"""Of tools, with what describes them, and format."""
_MAX_KEPT = 32
"""Of one model's grammars, those used last: agents send the same tools with every turn."""
_MAX_KEPT_BYTES = 8 << 20
"""Of one model's grammars, and of what they were made from."""


def offered_tools(tools: Sequence[Tool], choice: ToolChoice) -> list[Tool]:
    """Those that may be called. Raises PromptError for a choice of a tool that there is not."""
    if choice.mode == "none":
        return []
    known = {tool.function.name for tool in tools}
    for name in choice.names:
        if name not in known:
            raise PromptError(f"tool_choice names {name[:64]}, which is not among the tools")
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
    wanted = msgspec.msgpack.encode((form, tools, choice, answer))
    if len(wanted) > _MAX_WANTED_BYTES:
        raise PromptError(f"tools and format have {len(wanted)} bytes, more than {_MAX_WANTED_BYTES}")
    kept = _kept.setdefault(tokenizer, _Kept())
    if (grammar := kept.find(wanted)) is None:
        grammar = _tightest(family, form, tools, choice, answer, tokenizer)
        kept.add(wanted, grammar)
    return grammar


def _tightest(
    family: Family,
    form: ReplyFormat,
    tools: Sequence[Tool],
    choice: ToolChoice,
    answer: AnswerFormat | None,
    tokenizer: Tokenizer,
) -> str:
    """With schemas of tools as they are, else without details, else with no more than names: agents bring
    hundreds of tools. Raises PromptError.
    """
    failures: list[PromptError] = []
    for loosened in (_as_it_is, _without_details, _with_names):
        looser = [tool if tool.function.strict else loosened(tool) for tool in tools]
        try:
            return _composed(family, form, looser, choice, answer, tokenizer)
        except PromptError as error:
            failures.append(error)
        if all(tool.function.strict for tool in tools):
            break
    raise failures[0]


class _Kept:
    """Grammars that were found usable, by what they were made from."""

    def __init__(self) -> None:
        self._grammars: OrderedDict[bytes, str] = OrderedDict()
        self._num_bytes = 0

    def find(self, wanted: bytes) -> str | None:
        if (grammar := self._grammars.get(wanted)) is not None:
            self._grammars.move_to_end(wanted)
        return grammar

    def add(self, wanted: bytes, grammar: str) -> None:
        self._grammars[wanted] = grammar
        self._num_bytes += len(wanted) + len(grammar)
        while len(self._grammars) > _MAX_KEPT or self._num_bytes > _MAX_KEPT_BYTES:
            oldest, text = self._grammars.popitem(last=False)
            self._num_bytes -= len(oldest) + len(text)


_kept: WeakKeyDictionary[Tokenizer, _Kept] = WeakKeyDictionary()


def _as_it_is(tool: Tool) -> Tool:
    return tool


def _without_details(tool: Tool) -> Tool:
    return _with_parameters(tool, without_details(tool.function.parameters))


def _with_names(tool: Tool) -> Tool:
    properties = tool.function.parameters.get("properties")
    if not isinstance(properties, dict):
        return _with_parameters(tool, {})
    return _with_parameters(tool, {"type": "object", "properties": dict.fromkeys(properties, True)})


def _with_parameters(tool: Tool, parameters: dict[str, Any]) -> Tool:
    return Tool(msgspec.structs.replace(tool.function, parameters=parameters))


def _composed(
    family: Family,
    form: ReplyFormat,
    tools: Sequence[Tool],
    choice: ToolChoice,
    answer: AnswerFormat | None,
    tokenizer: Tokenizer,
) -> str:
    assert family.grammar is not None
    builder = GrammarBuilder(tokenizer.find_control)
    task = ReplyTask(
        tools=tools,
        must_call=choice.mode == "required",
        parallel=choice.parallel,
        answer=_answer_term(builder, answer),
        thinking=form.thinking_of(family),
        starts_thinking=form.starts_thinking,
    )
    grammar = builder.grammar(family.grammar(builder, task))
    check_grammar(grammar)
    return grammar


def _answer_term(builder: GrammarBuilder, answer: AnswerFormat | None) -> str | None:
    match answer:
        case None:
            return None
        case JsonAnswer():
            return builder.schema({"type": "object"})
        case SchemaAnswer(schema, strict):
            return builder.schema(schema, Rigour.STRICT if strict else Rigour.NORMAL)
        case RegexAnswer() | LarkAnswer():
            return _client_grammar(builder, answer)


def _client_grammar(builder: GrammarBuilder, answer: RegexAnswer | LarkAnswer) -> str:
    """Tried by itself first: in a reply, it may come late."""
    if isinstance(answer, LarkAnswer):
        check_lark(answer.grammar)

    def term(builder: GrammarBuilder) -> str:
        if isinstance(answer, LarkAnswer):
            return builder.lark(answer.grammar)
        return builder.regex(answer.pattern)

    alone = GrammarBuilder(lambda _: None)
    check_grammar(alone.grammar(term(alone)))
    return term(builder)
