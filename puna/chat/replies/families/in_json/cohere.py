"""`<|START_ACTION|>[{"tool_name": "f", "parameters": {...}}]<|END_ACTION|>`: Cohere's Command R7B and A.

Text may stand between tags of its own, which are left out.
https://docs.cohere.com/docs/command-a-hf
"""

from __future__ import annotations

import json
from dataclasses import replace

from puna.chat.grammars.builder import GrammarBuilder, more_calls, one_of
from puna.chat.grammars.task import ReplyTask
from puna.chat.replies.calls.arguments import as_object, parse_json
from puna.chat.replies.families.family import Family
from puna.chat.replies.pieces import Piece
from puna.chat.replies.reader import EndOfReply, NotACall, Reader, Steps, Tags
from puna.chat.replies.tagged import CallReader, Reading, tagged
from puna.chat.replies.thinking import ThinkingTags
from puna.chat.tools import Tool

_OPEN, _CLOSE = "<|START_ACTION|>", "<|END_ACTION|>"
_TEXTS = (("<|START_TEXT|>", "<|END_TEXT|>"), ("<|START_RESPONSE|>", "<|END_RESPONSE|>"))
_TEXT_TAGS = tuple(tag for pair in _TEXTS for tag in pair)
_THINKING = ThinkingTags("<|START_THINKING|>", "<|END_THINKING|>")


class CohereParser:
    """Leaves the tags around text out."""

    def __init__(self, reading: Reading) -> None:
        self._parser = _tagged(reading)
        self._reader = Reader()
        self._content: list[str] = []
        self._steps = self._without_tags()

    def add(self, text: str) -> Piece:
        """What is certain now."""
        return self._bare(self._parser.add(text))

    def flush(self) -> Piece:
        """What was held back, at the end of the reply. A call that is not complete is lost."""
        piece = self._bare(self._parser.flush())
        self._reader.end()
        next(self._steps, None)
        return piece + Piece(content="".join(self._content))

    def _bare(self, piece: Piece) -> Piece:
        self._reader.feed(piece.content)
        next(self._steps)
        bare = Piece(piece.thinking, "".join(self._content), piece.calls)
        self._content.clear()
        return bare

    def _without_tags(self) -> Steps[None]:
        tags = Tags(_TEXT_TAGS)
        try:
            while True:
                yield from self._reader.up_to(tags, self._content.append)
        except EndOfReply:
            self._content.append(self._reader.rest())


def _read_calls(reader: CallReader, tag: str) -> Steps[None]:  # noqa: ARG001
    yield from reader.space()
    if not (yield from reader.skip("[")):
        raise NotACall
    while True:
        yield from reader.space()
        if (yield from reader.skip("]")):
            break
        call = parse_json((yield from reader.balanced()))
        if not isinstance(call, dict) or not isinstance(call.get("tool_name"), str):
            raise NotACall
        reader.give(call["tool_name"], as_object(call.get("parameters")))
        yield from reader.space()
        yield from reader.skip(",")
    yield from reader.space()
    yield from reader.skip(_CLOSE)


_tagged = tagged(_read_calls, [_OPEN])


def _grammar(g: GrammarBuilder, task: ReplyTask) -> str:
    """Calls are numbered, or not."""
    calls = one_of([_call(g, tool) for tool in task.tools]) if task.tools else ""
    more = more_calls(f'"," {g.space()} {calls}') if task.parallel else ""
    rest = f'"[" {g.space()} {calls} {more} {g.space()} "]" {g.literal(_CLOSE)}'
    tagged_texts = [(begin, end) for begin, end in _TEXTS if g.is_control(begin)]
    if tagged_texts:
        answer = g.text() if task.answer is None else task.answer
        texts = [f"{g.literal(begin)} {answer} ({g.literal(end)})?" for begin, end in tagged_texts]
        task = replace(task, answer=one_of([answer, *texts]))
    return g.tagged_reply(task, _OPEN, rest, repeats=False)


def _call(g: GrammarBuilder, tool: Tool) -> str:
    number = g.regex(r'("tool_call_id": "[0-9]{1,3}", )?')
    name = g.plain(f'"tool_name": {json.dumps(tool.function.name, ensure_ascii=False)}, "parameters": ')
    return f'"{{" {number} {name} {g.arguments(tool.function)} "}}"'


COHERE = Family(
    name="cohere",
    recognizes=lambda source: _OPEN in source,
    new_parser=CohereParser,
    grammar=_grammar,
    tags=(_OPEN, _CLOSE, *_TEXT_TAGS, *_THINKING),
    thinking=_THINKING,
)
