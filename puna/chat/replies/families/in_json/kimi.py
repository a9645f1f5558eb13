"""`<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{...}
<|tool_call_end|><|tool_calls_section_end|>`: Kimi K2.

https://huggingface.co/moonshotai/Kimi-K2-Instruct/blob/main/docs/tool_call_guidance.md
"""

from __future__ import annotations

import re

from puna.chat.grammars.builder import GrammarBuilder, more_calls, one_of
from puna.chat.grammars.task import ReplyTask
from puna.chat.replies.calls.arguments import as_object, parse_json
from puna.chat.replies.families.family import Family
from puna.chat.replies.reader import NotACall, Steps
from puna.chat.replies.tagged import CallReader, tagged
from puna.chat.tools import Tool

_OPEN, _CLOSE = "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"
_CALL, _END_OF_CALL = "<|tool_call_begin|>", "<|tool_call_end|>"
_ARGUMENTS = "<|tool_call_argument_begin|>"
_ID = re.compile(r"[^<\n]*")
_NAME_IN_ID = re.compile(r"\s*(?:functions\.)?(.+?)(?::\d+)?\s*")


def _read_calls(reader: CallReader, tag: str) -> Steps[None]:  # noqa: ARG001
    yield from reader.space()
    if not (yield from reader.skip(_CALL)):
        raise NotACall
    while True:
        name = _NAME_IN_ID.fullmatch((yield from reader.word(_ID)))
        if not name or not (yield from reader.skip(_ARGUMENTS)):
            raise NotACall
        yield from reader.space()
        reader.give(name[1], as_object(parse_json((yield from reader.balanced()))))
        yield from reader.space()
        yield from reader.skip(_END_OF_CALL)
        yield from reader.space()
        if not (yield from reader.skip(_CALL)):
            break
    yield from reader.skip(_CLOSE)


def _grammar(g: GrammarBuilder, task: ReplyTask) -> str:
    calls = one_of([_call(g, tool) for tool in task.tools]) if task.tools else ""
    more = more_calls(calls) if task.parallel else ""
    return g.tagged_reply(task, _OPEN, f"{calls} {more} {g.literal(_CLOSE)}", repeats=False)


def _call(g: GrammarBuilder, tool: Tool) -> str:
    head = f"{g.literal(_CALL)} {g.plain(f'functions.{tool.function.name}:')} {g.regex('[0-9]{1,3}')}"
    return f"{head} {g.literal(_ARGUMENTS)} {g.arguments(tool.function)} {g.literal(_END_OF_CALL)}"


KIMI = Family(
    name="kimi-k2",
    recognizes=lambda source: _OPEN in source,
    new_parser=tagged(_read_calls, [_OPEN]),
    grammar=_grammar,
    tags=(_OPEN, _CLOSE, _CALL, _END_OF_CALL, _ARGUMENTS),
)
