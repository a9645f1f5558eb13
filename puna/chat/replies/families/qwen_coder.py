"""`<tool_call><function=f><parameter=k>v</parameter></function></tool_call>`: Qwen3-Coder, Qwen 3.5,
Nemotron 3.

Strings are written as they are, everything else as JSON. What the grammar cannot say: parameters in another
order than that of the schema, and what text_values.py says of strings.
https://huggingface.co/Qwen/Qwen3-Coder-30B-A3B-Instruct/blob/main/chat_template.jinja
"""

from __future__ import annotations

import re
from typing import Any

from puna.chat.grammars.builder import GrammarBuilder, one_of
from puna.chat.grammars.task import ReplyTask
from puna.chat.replies.families.family import Family
from puna.chat.replies.families.parameters import parameters_of, schemas_of
from puna.chat.replies.families.text_values import read_value, text_up_to
from puna.chat.replies.reader import NotACall, Steps
from puna.chat.replies.tagged import CallReader, tagged
from puna.chat.tools import Tool

_OPEN, _CLOSE = "<tool_call>", "</tool_call>"
_FUNCTION, _END_OF_FUNCTION = "<function=", "</function>"
_NAME = re.compile(r"[^<>\n]*")
_PARAMETER, _END_OF_VALUE = "<parameter=", "</parameter>"


def _read_calls(reader: CallReader, tag: str) -> Steps[None]:  # noqa: ARG001
    yield from reader.space()
    if not (yield from reader.skip(_FUNCTION)):
        raise NotACall
    name = yield from reader.word(_NAME)
    if not (yield from reader.skip(">")):
        raise NotACall
    schemas = schemas_of(reader.tools, name)
    arguments: dict[str, Any] = {}
    while True:
        yield from reader.space()
        if (yield from reader.skip(_PARAMETER)):
            parameter = yield from reader.text_up_to(">")
            line = "\n" if (yield from reader.comes("\n")) else ""
            value = read_value(reader, schemas.get(parameter, {}), line + _END_OF_VALUE, before=line)
            arguments[parameter] = yield from value
        elif (yield from reader.skip(_END_OF_FUNCTION)):
            break
        else:
            raise NotACall
    reader.give(name, arguments)
    yield from reader.space()
    yield from reader.skip(_CLOSE)


def _grammar(g: GrammarBuilder, task: ReplyTask) -> str:
    calls = one_of([_call(g, tool) for tool in task.tools]) if task.tools else ""
    return g.tagged_reply(task, _OPEN, f'"\\n" {calls} "\\n" {g.literal(_CLOSE)}', repeats=True)


def _call(g: GrammarBuilder, tool: Tool) -> str:
    parameters = [
        _optional_unless(
            parameter.required,
            f"{g.literal(_PARAMETER)} {g.plain(parameter.name + '>')} "
            + text_up_to(g, tool, parameter.schema, "\n" + _END_OF_VALUE, before="\n")
            + ' "\\n"',
        )
        for parameter in parameters_of(tool)
    ]
    head = g.plain(f"{tool.function.name}>\n")
    body = f"{g.literal(_FUNCTION)} {head} {' '.join(parameters)} {g.literal(_END_OF_FUNCTION)}"
    return g.rule("function", body)


def _optional_unless(required: bool, term: str) -> str:
    return term if required else f"({term})?"


QWEN_CODER = Family(
    name="qwen3-coder",
    recognizes=lambda source: _FUNCTION in source and _PARAMETER in source,
    new_parser=tagged(_read_calls, [_OPEN]),
    grammar=_grammar,
    tags=(_OPEN, _CLOSE, _FUNCTION, _END_OF_FUNCTION, _PARAMETER, f"\n{_END_OF_VALUE}"),
)
