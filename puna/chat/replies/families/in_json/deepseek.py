"""Calls of DeepSeek, in two forms, between `<｜tool▁calls▁begin｜>` and `<｜tool▁calls▁end｜>`.

V3.1: `<｜tool▁call▁begin｜>f<｜tool▁sep｜>{...}<｜tool▁call▁end｜>`. V3, R1 and Cogito have the kind of the
tool ("function") in front of the separator, and behind it the name and the arguments as a block of Markdown.
https://huggingface.co/deepseek-ai/DeepSeek-V3.1/blob/main/assets/chat_template.jinja
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

_BEGIN, _END = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
_CALL, _END_OF_CALL = "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>"
_SEPARATOR = "<｜tool▁sep｜>"
_KIND, _FENCE, _END_OF_FENCE = "function", "\n```json\n", "\n```"
_NAME = re.compile(r"[^<\n]*")
_TAGS = (_BEGIN, _END, _CALL, _END_OF_CALL, _SEPARATOR)


def _read_calls(reader: CallReader, tag: str) -> Steps[None]:  # noqa: ARG001
    yield from reader.space()
    if not (yield from reader.skip(_CALL)):
        raise NotACall
    while True:
        name = (yield from reader.word(_NAME)).strip()
        if not (yield from reader.skip(_SEPARATOR)):
            raise NotACall
        yield from reader.space()
        if not (yield from reader.comes("{")):
            name = (yield from reader.word(_NAME)).strip()
            yield from reader.space()
            yield from reader.skip("```json")
            yield from reader.space()
        if not name:
            raise NotACall
        reader.give(name, as_object(parse_json((yield from reader.balanced()))))
        yield from reader.space()
        yield from reader.skip("```")
        yield from reader.space()
        yield from reader.skip(_END_OF_CALL)
        yield from reader.space()
        if not (yield from reader.skip(_CALL)):
            break
    yield from reader.skip(_END)


def _fenced_call(g: GrammarBuilder, tool: Tool) -> str:
    head = f"{g.plain(_KIND)} {g.literal(_SEPARATOR)} {g.plain(tool.function.name + _FENCE)}"
    return f"{head} {g.arguments(tool.function)} {g.plain(_END_OF_FENCE)}"


def _bare_call(g: GrammarBuilder, tool: Tool) -> str:
    return f"{g.plain(tool.function.name)} {g.literal(_SEPARATOR)} {g.arguments(tool.function)}"


def _fenced_grammar(g: GrammarBuilder, task: ReplyTask) -> str:
    return _reply(g, task, [_fenced_call(g, tool) for tool in task.tools])


def _bare_grammar(g: GrammarBuilder, task: ReplyTask) -> str:
    return _reply(g, task, [_bare_call(g, tool) for tool in task.tools])


def _reply(g: GrammarBuilder, task: ReplyTask, calls: list[str]) -> str:
    call = f"{g.literal(_CALL)} {one_of(calls)} {g.literal(_END_OF_CALL)}" if calls else ""
    more = more_calls(f'"\\n"? {call}') if task.parallel else ""
    return g.tagged_reply(task, _BEGIN, f"{call}{more} {g.literal(_END)}", repeats=False)


DEEPSEEK_FENCED = Family(
    name="cogito",
    recognizes=lambda source: _BEGIN in source and "```json" in source,
    new_parser=tagged(_read_calls, [_BEGIN]),
    grammar=_fenced_grammar,
    tags=_TAGS,
)
DEEPSEEK = Family(
    name="deepseek3",
    recognizes=lambda source: _BEGIN in source,
    new_parser=tagged(_read_calls, [_BEGIN]),
    grammar=_bare_grammar,
    tags=_TAGS,
)
