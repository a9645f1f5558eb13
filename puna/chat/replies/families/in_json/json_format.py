"""Calls in JSON for all templates that no other family recognizes: `{"name": ..., "arguments": {...}}`, one
or a list of them, behind a tag if the template writes one in front of earlier calls; else a call is all of
the reply.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress

from puna.chat.grammars.builder import GrammarBuilder
from puna.chat.grammars.task import ReplyTask
from puna.chat.replies.calls.json_calls import (
    ARGUMENTS,
    NAMES,
    JsonFormat,
    json_call,
    json_call_list,
    read_json_calls,
)
from puna.chat.replies.families.family import Family
from puna.chat.replies.pieces import Call
from puna.chat.replies.reader import Steps
from puna.chat.replies.tagged import CallReader, tagged

_LONGEST = 64  # characters of a tag


def json_family(form: JsonFormat) -> Family:
    """Of templates with this format."""

    def read_calls(reader: CallReader, tag: str) -> Steps[None]:
        return read_json_calls(reader, form.close, only_offered=not tag)

    def grammar(g: GrammarBuilder, task: ReplyTask) -> str:
        calls = json_call_list(g, task, form) if form.is_list else json_call(g, task.tools, form)
        if not form.begin:
            return g.begun_reply(task, calls, first="{[")
        section = f"{g.space()} {calls} {g.space()} {g.literal(form.close)}"
        return g.tagged_reply(task, form.begin, section, repeats=not form.is_list)

    opens, opens_reply = ([form.begin], []) if form.begin else ([], ["{", "["])
    return Family(
        name="json",
        recognizes=lambda source: False,  # noqa: ARG005
        new_parser=tagged(read_calls, opens, opens_reply=opens_reply),
        grammar=grammar,
        tags=tuple(filter(None, (form.begin, form.close))),
        json=form,
    )


def format_by_tag(tag: str, source: str) -> JsonFormat:
    """tag: what stands in front of the JSON of a call in the source of a template."""
    begin = tag.strip()
    is_list = begin.endswith("[")
    begin = begin.removesuffix("[").rstrip()
    close = next((close for close in _closing(begin) if close in source), "")
    name = "tool_name" if '"tool_name": "{{' in source else "name"
    key = "parameters" if '"parameters": {{' in source else "arguments"
    return JsonFormat(begin="" if begin == "{" else begin, close=close, is_list=is_list, name=name, key=key)


def format_by_example(text: str, call: Call) -> JsonFormat | None:
    """text: what a template makes of a turn with this call, from its beginning. None: it is not in JSON with
    a name and arguments.
    """
    for brace in re.finditer(r"\{", text):
        with suppress(ValueError):
            value, end = json.JSONDecoder().raw_decode(text, brace.start())
            key = next((key for key in ARGUMENTS if value.get(key) == call.arguments), "")
            name = next((name for name in NAMES if value.get(name) == call.name), "")
            if name and key:
                return _around(text[: brace.start()], text[end:], name, key)
    return None


def _around(before: str, behind: str, name: str, key: str) -> JsonFormat | None:
    before, behind = before.strip(), behind.strip()
    is_list = before.endswith("[") and behind.startswith("]")
    if is_list:
        before, behind = before[:-1].rstrip(), behind[1:].lstrip()
    if len(before) > _LONGEST or "\n" in before:
        return None
    close = next(filter(behind.startswith, _closing(before)), "")
    return JsonFormat(begin=before, close=close, is_list=is_list, name=name, key=key)


def _closing(begin: str) -> list[str]:
    """Tags that may close a section which this one opens."""
    if not re.fullmatch(r"<[^<>\s]+>|\[\w+\]", begin):
        return []
    return [f"{begin[0]}/{begin[1:]}", begin.replace("<|", "<|/"), begin.replace("begin", "end")]
