"""Mistral: `[TOOL_CALLS][{"name": ..., "arguments": {...}, "id": ...}]`, and from 2025 on
`[TOOL_CALLS]name[CALL_ID]id[ARGS]{...}`, later without the id. Thoughts stand in `[THINK]...[/THINK]`.

https://github.com/mistralai/mistral-common
"""

from __future__ import annotations

import re

from puna.chat.grammars.builder import GrammarBuilder, one_of
from puna.chat.grammars.task import ReplyTask
from puna.chat.replies.calls.arguments import as_object, parse_json
from puna.chat.replies.calls.json_calls import json_call_list, read_json_calls
from puna.chat.replies.families.family import Family
from puna.chat.replies.reader import NotACall, Steps
from puna.chat.replies.tagged import CallReader, tagged
from puna.chat.replies.thinking import ThinkingTags

_CALLS, _ID, _ARGS = "[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"
_ID_PATTERN = "[a-zA-Z0-9]{9}"
_NAME = re.compile(r"[^\[\]{}\s]*")
_IDS = re.compile("[a-zA-Z0-9]*")


def _read_calls(reader: CallReader, tag: str) -> Steps[None]:  # noqa: ARG001
    yield from reader.space()
    if (yield from reader.comes("[")) or (yield from reader.comes("{")):
        yield from read_json_calls(reader)
        return
    name = yield from reader.one_of([tool.function.name for tool in reader.tools])
    name += yield from reader.word(_NAME)
    if (yield from reader.skip(_ID)):
        yield from reader.word(_IDS)
    if not name or not (yield from reader.skip(_ARGS)):
        raise NotACall
    yield from reader.space()
    reader.give(name, as_object(parse_json((yield from reader.balanced()))))


def _list_grammar(g: GrammarBuilder, task: ReplyTask) -> str:
    call_id = f'(", \\"id\\": \\"" {g.regex(_ID_PATTERN)} "\\"")?'
    return g.tagged_reply(task, _CALLS, json_call_list(g, task, behind=call_id), repeats=False)


def _with_id(g: GrammarBuilder, task: ReplyTask) -> str:
    return _args_grammar(g, task, f"{g.literal(_ID)} {g.regex(_ID_PATTERN)}")


def _without_id(g: GrammarBuilder, task: ReplyTask) -> str:
    return _args_grammar(g, task, "")


def _args_grammar(g: GrammarBuilder, task: ReplyTask, call_id: str) -> str:
    functions = [tool.function for tool in task.tools]
    calls = [f"{g.plain(f.name)} {call_id} {g.literal(_ARGS)} {g.arguments(f)}" for f in functions]
    return g.tagged_reply(task, _CALLS, one_of(calls) if calls else "", repeats=True)


_new_parser = tagged(_read_calls, [_CALLS])
_THINK = ThinkingTags("[THINK]", "[/THINK]")
MISTRAL = Family(
    name="mistral",
    recognizes=lambda source: _CALLS in source,
    new_parser=_new_parser,
    grammar=_list_grammar,
    tags=(_CALLS,),
    thinking=_THINK,
)
MISTRAL_IDS = Family(
    name="mistral-ids",
    recognizes=lambda source: _CALLS in source and _ARGS in source and _ID in source,
    new_parser=_new_parser,
    grammar=_with_id,
    tags=(_CALLS, _ID, _ARGS),
    thinking=_THINK,
)
MINISTRAL = Family(
    name="ministral",
    recognizes=lambda source: _CALLS in source and _ARGS in source,
    new_parser=_new_parser,
    grammar=_without_id,
    tags=(_CALLS, _ARGS),
    thinking=_THINK,
)
