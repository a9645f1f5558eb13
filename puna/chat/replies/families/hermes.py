"""`<tool_call>{"name": ..., "arguments": {...}}</tool_call>`: Hermes, Qwen 2.5 and 3, and many others.

https://github.com/NousResearch/Hermes-Function-Calling
"""

from __future__ import annotations

import json

from puna.chat.grammars.builder import GrammarBuilder, one_of
from puna.chat.grammars.task import ReplyTask
from puna.chat.replies.families.family import Family
from puna.chat.replies.json_calls import read_json_calls
from puna.chat.replies.reader import Steps
from puna.chat.replies.tagged import CallReader, tagged
from puna.chat.tools import Tool

_OPEN, _CLOSE = "<tool_call>", "</tool_call>"


def _read_calls(reader: CallReader, tag: str) -> Steps[None]:  # noqa: ARG001
    return read_json_calls(reader, _CLOSE)


def _grammar(g: GrammarBuilder, task: ReplyTask) -> str:
    calls = one_of([_call(g, tool) for tool in task.tools]) if task.tools else ""
    return g.tagged_reply(task, _OPEN, rf'"\n"? {calls} "\n"? {g.literal(_CLOSE)}', repeats=True)


def _call(g: GrammarBuilder, tool: Tool) -> str:
    head = g.literal('{"name": ' + json.dumps(tool.function.name) + ', "arguments": ')
    return f'{head} {g.schema(tool.function.parameters)} "}}"'


HERMES = Family(
    name="hermes",
    recognizes=lambda source: _OPEN in source and "<function=" not in source and "arg_key" not in source,
    new_parser=tagged(_read_calls, [_OPEN]),
    grammar=_grammar,
    tags=(_OPEN, _CLOSE),
)
