"""Reads a reply as it comes, so that parsers can be written as if all of it were there.

The functions here are generators that yield where they need more text. Each character is looked at a bounded
number of times, however the text is cut.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import NamedTuple, TypeVar

_T = TypeVar("_T")
Steps = Generator[None, None, _T]
"""Yields for more text; returns a result."""

SPACE = re.compile(r"[ \t\r\n]*")
"""What JSON calls whitespace."""

_DEEPEST = 256
_LITTLE = 64
_LOOKED_AHEAD = 128


class Brackets(NamedTuple):
    """How brackets are told from those in strings. opening: those that nest; their closing counterparts, too,
    are in `marks`, which finds what counts outside of strings. strings: for each quote, what counts within.
    """

    opening: str
    marks: re.Pattern[str]
    strings: Mapping[str, re.Pattern[str]]


_STRING, _OTHER_STRING = re.compile(r'\\[\s\S]|"'), re.compile(r"\\[\s\S]|'")
JSON = Brackets("{[", re.compile(r'["{}\[\]]'), {'"': _STRING})
PYTHON = Brackets("{[(", re.compile(r"""["'{}()\[\]]"""), {'"': _STRING, "'": _OTHER_STRING})


class EndOfReply(Exception):
    """The reply ends where more was needed."""


class NotACall(Exception):
    """What looked like a call is none."""


class Tags:
    """Texts to look for."""

    def __init__(self, tags: Sequence[str]) -> None:
        self.tags = tuple(tags)
        self._pattern = re.compile("|".join(map(re.escape, sorted(tags, key=len, reverse=True))))
        self._first = re.compile("|".join({re.escape(tag[:1]) for tag in tags}))

    def find(self, text: str, begin: int) -> tuple[int, int]:
        """Where the first one begins and ends; both the same: where one may begin, with all that there is."""
        if not self.tags or not self._first.search(text, begin):  # most text has no sign of one
            return len(text), len(text)
        if match := self._pattern.search(text, begin):
            return match.span()
        end = len(text)
        end -= max(overlap(text[max(begin, end - len(tag)) :], tag) for tag in self.tags)
        return end, end


class Reader:
    """What was fed and is not taken yet."""

    def __init__(self) -> None:
        self._text = ""
        self._position = 0
        self._ended = False
        self._record: list[str] | None = None

    def feed(self, text: str) -> None:
        """More of the reply."""
        self._text = self._text[self._position :] + text
        self._position = 0

    def end(self) -> None:
        """There will be no more: who needs more gets EndOfReply."""
        self._ended = True

    def rest(self) -> str:
        """Takes what there is."""
        return self._take(len(self._text))

    def put_back(self, text: str) -> None:
        """What was taken last."""
        self._position -= len(text)

    def begin_record(self, text: str = "") -> None:
        """Keeps what is taken from here on, behind this text."""
        self._record = [text]

    def end_record(self) -> str:
        """All that was taken since begin_record()."""
        record, self._record = self._record or [], None
        return "".join(record)

    def up_to(self, tags: Tags, sink: Callable[[str], None]) -> Steps[str]:
        """Gives the sink the text before the first tag as it comes. Returns the tag, which is taken, too."""
        while True:
            begin, end = tags.find(self._text, self._position)
            if begin > self._position:
                sink(self._take(begin))
            if end > begin:
                return self._take(end)
            yield from self._more()

    def text_up_to(self, tag: str) -> Steps[str]:
        """The text before the tag, which is taken, too."""
        parts: list[str] = []
        yield from self.up_to(Tags([tag]), parts.append)
        return "".join(parts)

    def skip(self, text: str) -> Steps[bool]:
        """Takes this text if it comes next; returns whether it does."""
        return bool((yield from self.one_of([text])))

    def one_of(self, texts: Sequence[str]) -> Steps[str]:
        """Takes the one of the texts that comes next, of several the longest; "" if none does."""
        while True:
            seen = self._text[self._position : self._position + max(map(len, texts), default=0)]
            if not any(text.startswith(seen) and text != seen for text in texts):
                found = max((text for text in texts if seen.startswith(text)), key=len, default="")
                return self._take(self._position + len(found)) if found else ""
            yield from self._more()

    def comes(self, text: str) -> Steps[bool]:
        """Whether this text comes next; takes nothing."""
        while True:
            seen = self._text[self._position : self._position + len(text)]
            if seen == text or not text.startswith(seen):
                return seen == text
            yield from self._more()

    def comes_behind_space(self, characters: str) -> Steps[bool]:
        """Whether one of these comes next, behind a little whitespace at most; takes nothing."""
        while True:
            rest = self._text[self._position : self._position + _LITTLE]
            if bare := rest.lstrip(" \t\r\n"):
                return bare[0] in characters
            if len(rest) == _LITTLE:
                return False
            yield from self._more()

    def run(self, pattern: re.Pattern[str], sink: Callable[[str], None]) -> Steps[None]:
        """Gives the sink as many characters as match. pattern: any number of one class of characters."""
        while True:
            match = pattern.match(self._text, self._position)
            if match is not None and match.end() > self._position:
                sink(self._take(match.end()))
            if self._position < len(self._text):
                return
            yield from self._more()

    def comes_but_for_space(self, texts: Sequence[str]) -> Steps[bool]:
        """Whether one of the texts comes next, not counting whitespace; takes nothing."""
        while True:
            seen = self._text[self._position : self._position + _LOOKED_AHEAD]
            bare = "".join(seen.split())
            if any(bare.startswith(text) for text in texts):
                return True
            if len(seen) == _LOOKED_AHEAD or not any(text.startswith(bare) for text in texts):
                return False
            yield from self._more()

    def space(self) -> Steps[None]:
        """Takes the whitespace that comes next."""
        return self.run(SPACE, lambda _: None)

    def word(self, pattern: re.Pattern[str]) -> Steps[str]:
        """Takes what matches. pattern: as for run()."""
        parts: list[str] = []
        yield from self.run(pattern, parts.append)
        return "".join(parts)

    def balanced(self, brackets: Brackets = JSON) -> Steps[str]:
        """Takes what comes next up to where its brackets are closed. Raises NotACall if no bracket opens
        here, or they are nested too deep.
        """
        if not (yield from self._any_comes(brackets.opening)):
            raise NotACall
        parts: list[str] = []
        depth, string = 0, None
        while True:
            position = self._position
            while match := (string or brackets.marks).search(self._text, position):
                position, mark = match.end(), match.group()
                if mark in brackets.strings:
                    string = None if string else brackets.strings[mark]
                elif not string:
                    depth += 1 if mark in brackets.opening else -1
                if depth > _DEEPEST:
                    raise NotACall
                if depth == 0:
                    return "".join([*parts, self._take(position)])
            escapes = string is not None and self._text.endswith("\\", position)
            parts.append(self._take(len(self._text) - escapes))
            yield from self._more()

    def _any_comes(self, chars: str) -> Steps[bool]:
        while self._position == len(self._text):
            yield from self._more()
        return self._text[self._position] in chars

    def _more(self) -> Steps[None]:
        if self._ended:
            raise EndOfReply
        yield

    def _take(self, end: int) -> str:
        text = self._text[self._position : end]
        self._position = end
        if self._record is not None:
            self._record.append(text)
        return text


def overlap(text: str, tag: str) -> int:
    """Length of the longest beginning of `tag`, short of all of it, that `text` ends with."""
    longest = min(len(text), len(tag) - 1)
    return next((n for n in range(longest, 0, -1) if text.endswith(tag[:n])), 0)
