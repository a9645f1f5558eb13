"""`<tool_call>{"name": ..., "arguments": {...}}</tool_call>`: Hermes, Qwen 2.5 and 3, Granite 4, SmolLM3, and
many others.

https://github.com/NousResearch/Hermes-Function-Calling
"""

from __future__ import annotations

from puna.chat.grammars.builder import GrammarBuilder
from puna.chat.grammars.task import ReplyTask
from puna.chat.replies.calls.json_calls import json_call, read_json_calls
from puna.chat.replies.families.family import Family
from puna.chat.replies.reader import Steps
from puna.chat.replies.tagged import CallReader, tagged

_OPEN, _CLOSE = "<tool_call>", "</tool_call>"
_OTHERS = ("<function=", "arg_key", "<invoke", "<tool_calls>")
"""Marks of families with other tags, or other things between these."""


def _read_calls(reader: CallReader, tag: str) -> Steps[None]:  # noqa: ARG001
    return read_json_calls(reader, _CLOSE)


def _grammar(g: GrammarBuilder, task: ReplyTask) -> str:
    section = rf'"\n"? {json_call(g, task.tools)} "\n"? {g.literal(_CLOSE)}'
    return g.tagged_reply(task, _OPEN, section, repeats=True)


HERMES = Family(
    name="hermes",
    recognizes=lambda source: _OPEN in source and not any(mark in source for mark in _OTHERS),
    new_parser=tagged(_read_calls, [_OPEN]),
    grammar=_grammar,
    tags=(_OPEN, _CLOSE),
)
