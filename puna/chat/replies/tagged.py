"""Replies whose thoughts stand between tags, and whose calls begin with one; the rest is text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from puna.chat.replies.pieces import Call, Piece, ReplyParser
from puna.chat.replies.reader import SPACE, EndOfReply, NotACall, Reader, Steps, Tags
from puna.chat.replies.thinking import ThinkingTags
from puna.chat.tools import Tool


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """tools: those that may be called; none: what looks like a call is text.
    thinking: what thoughts stand between; None: they are not told from the rest.
    starts_thinking: the prompt has opened them.
    """

    tools: Sequence[Tool] = ()
    thinking: ThinkingTags | None = None
    starts_thinking: bool = False


class CallReader(Reader):
    """Reads the calls behind a tag."""

    def __init__(self, tools: Sequence[Tool]) -> None:
        super().__init__()
        self.tools = tools
        self._calls: list[Call] = []

    def give(self, name: str, arguments: dict[str, Any]) -> None:
        """A call that is complete; what was taken for it is done with."""
        self._calls.append(Call(name, arguments))
        self.begin_record()

    def given(self) -> list[Call]:
        """The calls since this was asked last."""
        calls, self._calls = self._calls, []
        return calls


ReadCalls = Callable[[CallReader, str], Steps[None]]
"""Takes what stands behind a tag (the one given) up to the end of the section that it opens, and gives its
calls. Raises NotACall: then what was taken since the last call is content."""


def _no_calls(reader: CallReader, tag: str) -> Steps[None]:  # noqa: ARG001
    raise NotACall
    yield


def tagged(
    read_calls: ReadCalls = _no_calls, opens: Sequence[str] = (), *, opens_reply: Sequence[str] = ()
) -> Callable[[Reading], ReplyParser]:
    """A family's `new_parser`.

    opens: tags that open calls wherever they stand. opens_reply: others that do so only at the beginning of a
    reply, behind its thoughts, or behind a call; `read_calls` finds them not taken, and gets "" as tag.
    """

    def new_parser(reading: Reading) -> ReplyParser:
        if not reading.tools and reading.thinking is None:
            return TextParser()
        return TaggedParser(reading, read_calls, opens, opens_reply)

    return new_parser


class TextParser:
    """Of replies in which nothing is looked for."""

    def add(self, text: str) -> Piece:
        """All of it."""
        return Piece(content=text)

    def flush(self) -> Piece:
        """Nothing is held back."""
        return Piece()


class TaggedParser:
    """Thoughts are what stands between the tags at the beginning, or behind a call. A call ends them, too.

    Whitespace behind a tag is swallowed, and so is that in front of calls if no text follows.
    """

    def __init__(
        self,
        reading: Reading,
        read_calls: ReadCalls = _no_calls,
        opens: Sequence[str] = (),
        opens_reply: Sequence[str] = (),
    ) -> None:
        self._reader = CallReader(reading.tools)
        self._thinking = reading.thinking
        self._read_calls = read_calls
        self._opens = Tags(opens if reading.tools else ())
        self._opens_reply = tuple(opens_reply) if reading.tools else ()
        self._thoughts: list[str] = []
        self._content: list[str] = []
        self._space: list[str] = []  # comes out in front of more content, if at all
        self._has_content = False
        self._behind_tag = False
        self._steps = self._reply(starts_thinking=reading.starts_thinking)

    def add(self, text: str) -> Piece:
        """What is certain now."""
        self._reader.feed(text)
        next(self._steps)
        return self._taken()

    def flush(self) -> Piece:
        """What was held back, at the end of the reply. A call that is not complete is lost."""
        self._reader.end()
        next(self._steps, None)
        if not self._behind_tag:
            self._content += self._space
        return self._taken()

    def _taken(self) -> Piece:
        piece = Piece("".join(self._thoughts), "".join(self._content), tuple(self._reader.given()))
        self._thoughts.clear()
        self._content.clear()
        return piece

    def _reply(self, *, starts_thinking: bool) -> Steps[None]:
        thinking = self._thinking
        try:
            tag = thinking.open if thinking and starts_thinking else (yield from self._next_tag(thinking))
            while True:
                if thinking and tag == thinking.open:
                    tag = yield from self._think(thinking)
                elif not tag:
                    tag = yield from self._reader.up_to(self._opens, self._say)
                elif (yield from self._call(tag, self._say)):
                    tag = yield from self._next_tag(thinking)
                else:
                    tag = ""
        except EndOfReply:
            if rest := self._reader.rest():
                self._say(rest)

    def _next_tag(self, thinking: ThinkingTags | None) -> Steps[str]:
        """The tag that comes next, behind whitespace; "" if none does."""
        yield from self._reader.run(SPACE, self._space.append)
        opens = [*self._opens_reply, *self._opens.tags, *([thinking.open] if thinking else [])]
        return (yield from self._reader.one_of(opens))

    def _think(self, thinking: ThinkingTags) -> Steps[str]:
        """Returns the tag behind the thoughts."""
        self._behind_tag = True
        yield from self._reader.space()
        ends = Tags((thinking.close, *self._opens.tags))
        while True:
            try:
                tag = yield from self._reader.up_to(ends, self._thoughts.append)
            except EndOfReply:
                self._thoughts.append(self._reader.rest())
                raise
            if tag == thinking.close:
                return (yield from self._next_tag(None))
            if (yield from self._call(tag, self._thoughts.append)):
                return (yield from self._next_tag(thinking))

    def _call(self, tag: str, otherwise: Callable[[str], None]) -> Steps[bool]:
        """Returns whether there was one behind the tag; otherwise gets what is none."""
        if tag in self._opens_reply:
            self._reader.put_back(tag)
            tag = ""
        self._reader.begin_record(tag)
        try:
            yield from self._read_calls(self._reader, tag)
        except NotACall:
            otherwise(self._reader.end_record())
            return False
        except EndOfReply:
            self._behind_tag = True
            self._reader.rest()
            raise
        self._reader.end_record()
        self._behind_tag = True
        return True

    def _say(self, text: str) -> None:
        if self._behind_tag and not self._has_content:
            self._space.clear()
        bare = text.rstrip() if self._opens.tags else text
        if bare:
            self._content += [*self._space, bare]
            self._space.clear()
            self._has_content, self._behind_tag = True, False
        self._space.append(text[len(bare) :])
