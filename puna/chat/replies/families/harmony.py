"""Replies in channels: OpenAI's harmony format, that of gpt-oss.

A reply is one message after the other, `<|channel|>NAME ...<|message|>TEXT<|end|><|start|>assistant`. What is
in the channel "analysis" are thoughts; what goes to a function (`to=functions.f`, in front of the channel or
behind it) is a call, which ends the reply; all other text is content. Calls cannot be parallel, and thoughts
cannot be forbidden. https://cookbook.openai.com/articles/openai-harmony
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from puna.chat.grammars.builder import GrammarBuilder, one_of
from puna.chat.grammars.task import ReplyTask
from puna.chat.replies.arguments import as_object, parse_json
from puna.chat.replies.families.family import Family
from puna.chat.replies.pieces import Piece
from puna.chat.replies.reader import EndOfReply, NotACall, Steps, Tags
from puna.chat.replies.tagged import CallReader, Reading
from puna.chat.tools import Tool

_CHANNEL, _MESSAGE, _CONSTRAIN = "<|channel|>", "<|message|>", "<|constrain|>"
_START, _END = "<|start|>", "<|end|>"
_TAGS = (_CHANNEL, _MESSAGE, _CONSTRAIN, _START, _END)
_BEHIND_TEXT, _BEHIND_HEAD = Tags((_CHANNEL, _START, _END)), Tags([_MESSAGE])
_RECIPIENT = re.compile(r"\bto=(?:functions\.)?([^\s<]+)")
_PEOPLE = ("assistant", "user", "all")


class HarmonyParser:
    """Text goes in as it comes; nothing of a tag or of a message's head comes out.

    Text without tags is content.
    """

    def __init__(self, reading: Reading) -> None:
        self._reader = CallReader(reading.tools)
        self._names = {written: name for name, written in written_names(reading.tools).items()}
        self._thoughts: list[str] = []
        self._content: list[str] = []
        self._steps = self._reply()

    def add(self, text: str) -> Piece:
        """What is certain now."""
        self._reader.feed(text)
        next(self._steps)
        return self._taken()

    def flush(self) -> Piece:
        """What was held back, at the end of the reply. A call that is not complete is lost."""
        self._reader.end()
        next(self._steps, None)
        return self._taken()

    def _taken(self) -> Piece:
        piece = Piece("".join(self._thoughts), "".join(self._content), tuple(self._reader.given()))
        self._thoughts.clear()
        self._content.clear()
        return piece

    def _reply(self) -> Steps[None]:
        sink = self._content
        try:
            begins_in_head = yield from self._reader.comes(" to=")
            while True:
                tag = "" if begins_in_head else (yield from self._reader.up_to(_BEHIND_TEXT, sink.append))
                begins_in_head = False
                sink = yield from self._message(tag)
        except EndOfReply:
            sink.append(self._reader.rest())

    def _message(self, tag: str) -> Steps[list[str]]:
        """Takes a head, and the call behind it if there is one; returns where the text behind that goes."""
        head = [tag]
        try:
            yield from self._reader.up_to(_BEHIND_HEAD, head.append)
            recipient = _RECIPIENT.search("".join(head))
            if recipient and recipient[1] not in _PEOPLE and self._reader.tools:
                return (yield from self._call(recipient[1]))
        except EndOfReply:
            self._reader.rest()
            raise
        return self._thoughts if f"{_CHANNEL}analysis" in "".join(head) else self._content

    def _call(self, name: str) -> Steps[list[str]]:
        self._reader.begin_record()
        try:
            yield from self._reader.space()
            arguments = as_object(parse_json((yield from self._reader.balanced())))
        except NotACall:
            self._content.append(self._reader.end_record())
            return self._content
        self._reader.give(self._names.get(name, name), arguments)
        self._reader.end_record()
        return []


def writes_channels(source: str) -> bool:
    """Whether replies to prompts of a chat template are in channels."""
    return _CHANNEL in source and _MESSAGE in source


def written_names(tools: Sequence[Tool]) -> dict[str, str]:
    """Identifiers for the names of functions, which are written as types of TypeScript."""
    names = sorted((tool.function.name for tool in tools), key=lambda name: not name.isidentifier())
    written: dict[str, str] = {}
    for name in names:
        identifier = re.sub(r"\W", "_", name, flags=re.ASCII)
        identifier = f"_{identifier}" if identifier[:1].isdigit() else identifier
        while identifier in written.values():
            identifier += "_"
        written[name] = identifier
    return written


def _grammar(g: GrammarBuilder, task: ReplyTask) -> str:
    following = g.literal(f"{_START}assistant")
    thoughts = f"{g.literal(f'{_CHANNEL}analysis{_MESSAGE}')} {g.text_up_to(_END)} {following}"
    preamble = f"{g.literal(f'{_CHANNEL}commentary{_MESSAGE}')} {g.text_up_to(_END)} {following}"
    may_speak = task.tools and not task.must_call and task.answer is None
    before = f"({one_of([thoughts, preamble]) if may_speak else thoughts})*"
    names = written_names(task.tools)
    last = [_call(g, tool, names[tool.function.name]) for tool in task.tools]
    if not task.must_call:
        last.append(_final(g, task.answer))
    return f"{before} {one_of(last)}"


def _final(g: GrammarBuilder, answer: str | None) -> str:
    head = g.literal(f"{_CHANNEL}final")
    if answer is None:
        return f"{head} {g.literal(_MESSAGE)} ({g.text()} | {g.text_up_to(_END)})"
    return f"{head} {_constraint(g)} {g.literal(_MESSAGE)} {answer}"


def _call(g: GrammarBuilder, tool: Tool, name: str) -> str:
    """With the recipient behind the channel, or in front of it."""
    recipient, channel = f'" to=functions.{name}"', g.literal(f"{_CHANNEL}commentary")
    heads = one_of([f"{channel} {recipient}", f"{recipient} {channel}"])
    return f"{heads} {_constraint(g)} {g.literal(_MESSAGE)} {g.arguments(tool.function)}"


def _constraint(g: GrammarBuilder) -> str:
    return f'(" " ({g.literal(_CONSTRAIN)})? "json")?'


HARMONY = Family(
    name="harmony",
    recognizes=writes_channels,
    new_parser=HarmonyParser,
    grammar=_grammar,
    tags=_TAGS,
    thinking=None,
)
