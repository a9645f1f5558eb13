"""`<tool_call>f<arg_key>k</arg_key><arg_value>v</arg_value></tool_call>`: GLM 4.5 to 4.7, Laguna.

Until 4.6 each part has a line of its own, and a name ends with its line. Strings are written as they are,
everything else as JSON. What the grammar cannot say: arguments in another order than that of the schema, and
what text_values.py says of strings.
https://huggingface.co/zai-org/GLM-4.7/blob/main/chat_template.jinja
"""

from __future__ import annotations

import re
from typing import Any

from puna.chat.grammars.builder import GrammarBuilder, one_of
from puna.chat.grammars.task import ReplyTask
from puna.chat.replies.calls.parameters import parameters_of, schemas_of
from puna.chat.replies.calls.text_values import read_value, text_up_to
from puna.chat.replies.families.family import Family
from puna.chat.replies.reader import NotACall, Steps
from puna.chat.replies.tagged import CallReader, tagged
from puna.chat.tools import Tool

_OPEN, _CLOSE = "<tool_call>", "</tool_call>"
_KEY, _END_OF_KEY = "<arg_key>", "</arg_key>"
_VALUE, _END_OF_VALUE = "<arg_value>", "</arg_value>"
_BEHIND_NAME = (_KEY, _CLOSE)
_NAME = re.compile(r"[^<\n]*")


def _read_calls(reader: CallReader, tag: str) -> Steps[None]:  # noqa: ARG001
    name = (yield from reader.word(_NAME)).strip()
    yield from reader.space()
    found = yield from reader.one_of(_BEHIND_NAME)
    if not name:
        raise NotACall
    schemas = schemas_of(reader.tools, name)
    arguments: dict[str, Any] = {}
    while found == _KEY:
        key = (yield from reader.text_up_to(_END_OF_KEY)).strip()
        yield from reader.space()
        if not (yield from reader.skip(_VALUE)):
            raise NotACall
        arguments[key] = yield from read_value(reader, schemas.get(key, {}), _END_OF_VALUE)
        yield from reader.space()
        found = yield from reader.one_of(_BEHIND_NAME)
    if found != _CLOSE:
        raise NotACall
    reader.give(name, arguments)


def _grammar(g: GrammarBuilder, task: ReplyTask) -> str:
    calls = one_of([_call(g, tool) for tool in task.tools]) if task.tools else ""
    return g.tagged_reply(task, _OPEN, f"{calls} {g.literal(_CLOSE)}", repeats=True)


def _call(g: GrammarBuilder, tool: Tool) -> str:
    line = '"\\n"?'
    arguments = []
    for parameter in parameters_of(tool):
        key = f"{g.literal(_KEY)} {g.plain(parameter.name)} {g.literal(_END_OF_KEY)} {line}"
        value = f"{g.literal(_VALUE)} {text_up_to(g, tool, parameter.schema, _END_OF_VALUE)} {line}"
        arguments.append(f"{key} {value}" if parameter.required else f"({key} {value})?")
    return g.rule("function", f"{g.plain(tool.function.name)} {line} {' '.join(arguments)}")


GLM = Family(
    name="glm-4.7",
    recognizes=lambda source: _KEY in source and _VALUE in source,
    new_parser=tagged(_read_calls, [_OPEN]),
    grammar=_grammar,
    tags=(_OPEN, _CLOSE, _KEY, _END_OF_KEY, _VALUE, _END_OF_VALUE),
)
