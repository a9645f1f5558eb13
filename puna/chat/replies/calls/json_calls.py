"""Calls written as JSON objects with a name and arguments."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec

from puna.chat.grammars.builder import GrammarBuilder, more_calls, one_of
from puna.chat.grammars.task import ReplyTask
from puna.chat.replies.calls.arguments import as_object, parse_json
from puna.chat.replies.pieces import Call
from puna.chat.replies.reader import NotACall, Steps
from puna.chat.replies.tagged import CallReader
from puna.chat.tools import Tool

ARGUMENTS = ("arguments", "parameters")
NAMES = ("name", "tool_name")
_BEGINNINGS = ('{"name":', '{"tool_name":', '{"type":"function"', '{"function":')


class JsonFormat(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """begin: the tag in front of calls; "": there is none. close: the tag behind them, likewise.
    is_list: calls are a list, even a single one.
    name, key: what a call has its function's name and its arguments under.
    """

    begin: str = ""
    close: str = ""
    is_list: bool = False
    name: str = "name"
    key: str = "arguments"


_USUAL = JsonFormat()


def read_json_calls(reader: CallReader, close: str = "", *, only_offered: bool = False) -> Steps[None]:
    """Takes one object after the other, or a list of them, and what closes the section if it is there. Each
    call is given as soon as its object is whole. Raises NotACall for anything else, and for tools that were
    not offered if only those count.
    """
    yield from reader.space()
    in_list = yield from reader.skip("[")
    yield from reader.space()
    while not (in_list and (yield from reader.comes("]"))):
        if only_offered and not (yield from reader.comes_but_for_space(_BEGINNINGS)):
            raise NotACall  # soon, for an answer in JSON to stream
        call = call_of(parse_json((yield from reader.balanced())))
        if only_offered and not any(tool.function.name == call.name for tool in reader.tools):
            raise NotACall
        reader.give(call.name, call.arguments)
        yield from reader.space()
        has_comma = yield from reader.skip(",")
        yield from reader.space()
        if not (has_comma or (yield from reader.comes("{"))):
            break
    if in_list:
        yield from reader.skip("]")
        yield from reader.space()
    if close:
        yield from reader.skip(close)


def call_of(value: Any) -> Call:
    """`{"name": ..., "arguments": {...}}`, also with "tool_name" or "parameters", arguments as a string, or
    all of it within "function". Raises NotACall for anything else.
    """
    if isinstance(value, dict) and isinstance(value.get("function"), dict):
        value = value["function"]
    if not isinstance(value, dict):
        raise NotACall
    name = next((value[key] for key in NAMES if key in value), None)
    if not isinstance(name, str) or not name:
        raise NotACall
    arguments = next((value[key] for key in ARGUMENTS if key in value), None)
    return Call(name, as_object(arguments))


def json_call(
    g: GrammarBuilder, tools: Sequence[Tool], form: JsonFormat = _USUAL, *, behind: str = ""
) -> str:
    """A term: `{"name": ..., "arguments": {...}}` of one of the tools; "" if there are none.

    behind: a term for what may stand between the arguments and the brace.
    """
    return one_of([_call(g, tool, form, behind) for tool in tools]) if tools else ""


def json_call_list(g: GrammarBuilder, task: ReplyTask, form: JsonFormat = _USUAL, *, behind: str = "") -> str:
    """A term: a list of such calls, as many as there may be."""
    if not task.tools:
        return ""
    call = g.rule("listed_call", json_call(g, task.tools, form, behind=behind))
    more = more_calls(f'"," {g.space()} {call}') if task.parallel else ""
    return f'"[" {g.space()} {call} {more} {g.space()} "]"'


def _call(g: GrammarBuilder, tool: Tool, form: JsonFormat, behind: str) -> str:
    name = json.dumps(tool.function.name, ensure_ascii=False)
    head = g.plain(f'{{"{form.name}": {name}, "{form.key}": ')
    return f'{head} {g.arguments(tool.function)} {behind} "}}"'
