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
from puna.chat.replies.calls.arguments import as_object, parse_json
from puna.chat.replies.families.family import Family
from puna.chat.replies.pieces import Piece
from puna.chat.replies.reader import EndOfReply, NotACall, Steps, Tags
from puna.chat.replies.tagged import CallReader, Reading
from puna.chat.tools import Tool

_CHANNEL, _MESSAGE, _CONSTRAIN = "<|channel|>", "<|message|>", "<|constrain|>"
_START, _END = "<|start|>", "<|end|>"
_TAGS = (_CHANNEL, _MESSAGE, _CONSTRAIN, _START, _END)
_ALL_TAGS, _BEHIND_HEAD = Tags(_TAGS), Tags([_MESSAGE])
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
            if (yield from self._reader.comes(" to=")):
                sink = yield from self._message("")
            while True:
                tag = yield from self._reader.up_to(_ALL_TAGS, sink.append)
                if tag not in (_MESSAGE, _CONSTRAIN):
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
    taken: set[str] = set()
    for name in names:
        identifier = re.sub(r"\W", "_", name, flags=re.ASCII)
        identifier = f"_{identifier}" if identifier[:1].isdigit() else identifier
        while identifier in taken:
            identifier += "_"
        taken.add(identifier)
        written[name] = identifier
    return written


def _grammar(g: GrammarBuilder, task: ReplyTask) -> str:
    names = written_names(task.tools)
    calls = [
        (f'" to=functions.{names[tool.function.name]}"', _body(g, g.arguments(tool.function)))
        for tool in task.tools
    ]
    opens = g.literal(_CHANNEL)
    before_channel = [f'{recipient} {opens} "commentary" {body}' for recipient, body in calls]

    def channel(this: str) -> str:
        head = one_of([f"{opens} {this}", *before_channel])
        begin, next_message = g.literal(_START), f'"assistant" {head}'
        others = ((_START, next_message), (_CHANNEL, this))
        behind = g.rule("behind_text", g.ended_text((_END, f"{begin} {next_message}"), *others))
        messages = [f'"analysis" {g.literal(_MESSAGE)} {behind}']
        messages += [f'"commentary" {recipient} {body}' for recipient, body in calls]
        if task.tools and not task.must_call and task.answer is None:
            messages.append(f'"commentary" {g.literal(_MESSAGE)} {behind}')
        if not task.must_call:
            text = g.ended_text((_END, f"({begin} {next_message})?"), *others, may_go_on=True)
            answer = f"{g.literal(_MESSAGE)} {text}" if task.answer is None else _body(g, task.answer)
            messages.append(f'"final" {answer}')
        return " | ".join(messages)

    return one_of([f"{opens} {g.recursive_rule('channel', channel)}", *before_channel])


def _body(g: GrammarBuilder, term: str) -> str:
    """What stands behind the channel or the recipient of a message in JSON."""
    return f'(" " ({g.literal(_CONSTRAIN)})? "json")? {g.literal(_MESSAGE)} {term}'


HARMONY = Family(
    name="harmony",
    recognizes=writes_channels,
    new_parser=HarmonyParser,
    grammar=_grammar,
    tags=_TAGS,
    thinking=None,
    written_names=written_names,
    efforts={"max": "high"},
)
