"""Llama 3: a reply that is a call, `{"name": ..., "parameters": {...}}`. And the form that Llama 3.2 and 4
may be asked for, `[f(a=1), g(b='x')]`. Some put `<|python_tag|>` in front.

https://www.llama.com/docs/model-cards-and-prompt-formats/llama3_1
https://www.llama.com/docs/model-cards-and-prompt-formats/llama3_2
"""

from __future__ import annotations

from puna.chat.grammars.builder import GrammarBuilder
from puna.chat.grammars.task import ReplyTask
from puna.chat.replies.calls.json_calls import JsonFormat, json_call, read_json_calls
from puna.chat.replies.calls.python_calls import calls_term, parse_calls
from puna.chat.replies.families.family import Family
from puna.chat.replies.reader import PYTHON, NotACall, Steps
from puna.chat.replies.tagged import CallReader, tagged

_TAG = "<|python_tag|>"
_FORMAT = JsonFormat(key="parameters")
_HEADERS = ("<|start_header_id|>", "<|header_start|>")


def _read_calls(reader: CallReader, tag: str) -> Steps[None]:  # noqa: ARG001
    is_tagged = yield from reader.skip(_TAG)
    if (yield from reader.comes("[")):
        offered = {tool.function.name for tool in reader.tools}
        calls = parse_calls((yield from reader.balanced(PYTHON)))
        if calls is None or any(call.name not in offered for call in calls):
            raise NotACall
        for call in calls:
            reader.give(call.name, call.arguments)
    else:
        yield from read_json_calls(reader, ";", only_offered=not is_tagged)


def _json_grammar(g: GrammarBuilder, task: ReplyTask) -> str:
    call = f"{_optional_tag(g)} {json_call(g, task.tools, _FORMAT)}"
    return g.begun_reply(task, call, first="{[")


def _python_grammar(g: GrammarBuilder, task: ReplyTask) -> str:
    calls = calls_term(g, task.tools, parallel=task.parallel) if task.tools else ""
    return g.begun_reply(task, f'{_optional_tag(g)} "[" {calls} "]"', first="{[")


def _optional_tag(g: GrammarBuilder) -> str:
    return f"({g.literal(_TAG)})?"


def _is_llama(source: str) -> bool:
    return any(header in source for header in _HEADERS)


_new_parser = tagged(_read_calls, [], opens_reply=[_TAG, "{", "["])
LLAMA = Family(
    name="llama",
    recognizes=lambda source: _is_llama(source) and '"parameters"' in source,
    new_parser=_new_parser,
    grammar=_json_grammar,
    tags=(_TAG,),
)
LLAMA_PYTHONIC = Family(
    name="llama-pythonic",
    recognizes=lambda source: _is_llama(source) and "[func_name1(" in source,
    new_parser=_new_parser,
    grammar=_python_grammar,
    tags=(_TAG,),
)
