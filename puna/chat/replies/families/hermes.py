"""`<tool_call>{"name": ..., "arguments": {...}}</tool_call>`: Hermes, Qwen 2.5 and 3, and many others.

https://github.com/NousResearch/Hermes-Function-Calling
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec

from puna.chat.grammars.builder import GrammarBuilder, one_of
from puna.chat.grammars.task import ReplyTask
from puna.chat.replies.families.family import Family
from puna.chat.replies.pieces import Call, Piece
from puna.chat.replies.thinking import overlap
from puna.chat.tools import Tool

_OPEN, _CLOSE = "<tool_call>", "</tool_call>"


class HermesParser:
    """What is between tags but is no call is content."""

    def __init__(self) -> None:
        self._held = ""

    def add(self, text: str) -> Piece:
        self._held += text
        piece = Piece()
        while True:
            before, opened, behind = self._held.partition(_OPEN)
            if not opened:
                num_held = overlap(before, _OPEN)
                certain, self._held = before[: len(before) - num_held], before[len(before) - num_held :]
                return piece + Piece(content=certain)
            body, closed, rest = behind.partition(_CLOSE)
            if not closed:
                self._held = opened + behind
                return piece + Piece(content=before)
            piece += Piece(content=before) + self._parsed(body)
            self._held = rest

    def flush(self) -> Piece:
        held, self._held = self._held, ""
        return Piece(content=held)

    def _parsed(self, body: str) -> Piece:
        try:
            call = msgspec.json.decode(body, type=dict[str, Any])
            return Piece(calls=[Call(str(call["name"]), dict(call.get("arguments") or {}))])
        except (msgspec.DecodeError, KeyError, TypeError, ValueError):
            return Piece(content=_OPEN + body + _CLOSE)


def _new_parser(tools: Sequence[Tool]) -> HermesParser:  # noqa: ARG001
    return HermesParser()


def _grammar(g: GrammarBuilder, task: ReplyTask) -> str:
    calls = one_of([_call(g, tool) for tool in task.tools]) if task.tools else ""
    return g.tagged_reply(task, _OPEN, rf'"\n"? {calls} "\n"? {g.literal(_CLOSE)}', repeats=True)


def _call(g: GrammarBuilder, tool: Tool) -> str:
    head = g.literal('{"name": ' + json.dumps(tool.function.name) + ', "arguments": ')
    return f'{head} {g.schema(tool.function.parameters)} "}}"'


HERMES = Family(
    name="hermes",
    recognizes=lambda source: _OPEN in source and "<function=" not in source and "arg_key" not in source,
    new_parser=_new_parser,
    grammar=_grammar,
    tags=(_OPEN, _CLOSE),
)
