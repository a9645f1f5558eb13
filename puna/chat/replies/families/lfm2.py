"""`<|tool_call_start|>[f(a='x'), g()]<|tool_call_end|>`: LFM2.

https://docs.liquid.ai/lfm/key-concepts/tool-use
"""

from __future__ import annotations

from collections.abc import Sequence

from puna.chat.grammars.builder import GrammarBuilder
from puna.chat.grammars.task import ReplyTask
from puna.chat.replies.calls.python_calls import calls_term, give_calls, written_call
from puna.chat.replies.families.family import Family
from puna.chat.replies.pieces import Call
from puna.chat.replies.reader import PYTHON, Steps
from puna.chat.replies.tagged import CallReader, tagged

_OPEN, _CLOSE = "<|tool_call_start|>", "<|tool_call_end|>"
_LISTS = ("<|tool_list_start|>", "List of tools: [")


def _read_calls(reader: CallReader, tag: str) -> Steps[None]:  # noqa: ARG001
    yield from reader.space()
    give_calls(reader, (yield from reader.balanced(PYTHON)))
    yield from reader.space()
    yield from reader.skip(_CLOSE)


def _grammar(g: GrammarBuilder, task: ReplyTask) -> str:
    calls = calls_term(g, task.tools, parallel=task.parallel) if task.tools else ""
    return g.tagged_reply(task, _OPEN, f'"[" {calls} "]" {g.literal(_CLOSE)}', repeats=False)


def _written(calls: Sequence[Call]) -> str:
    return f"{_OPEN}[{', '.join(map(written_call, calls))}]{_CLOSE}"


LFM2 = Family(
    name="lfm2",
    recognizes=lambda source: _OPEN in source or any(opening in source for opening in _LISTS),
    new_parser=tagged(_read_calls, [_OPEN]),
    grammar=_grammar,
    tags=(_OPEN, _CLOSE),
    written=_written,
)
