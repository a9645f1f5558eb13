"""Cuts a template into tokens."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from puna.gotemplate.errors import GoTemplateError

_SPACE = " \t\r\n"
_OPEN = "{{"

_TERMINATED = r"(?=[ \t\r\n.,|:()]|\}\}|\Z)"
_TOKEN = re.compile(
    rf"""
      (?P<close>[ \t\r\n]-\}}\}}|\}}\}})
    | (?P<space>[ \t\r\n]+?(?=[ \t\r\n]-\}}\}})|[ \t\r\n]+)
    | (?P<string>"(?:\\.|[^"\\\n])*")
    | (?P<raw>`[^`]*`)
    | (?P<char>'(?:\\[^\n]|[^'\\\n])+')
    | (?P<number>[+-]?(?:0[xX][0-9a-fA-F_]+|0[bB][01_]+|0[oO][0-7_]+
        |(?:[0-9][0-9_]*(?:\.[0-9_]*)?|\.[0-9][0-9_]*)(?:[eE][+-]?[0-9_]+)?)(?!\w))
    | (?P<declare>:=)
    | (?P<punctuation>[=|(),])
    | (?P<variable>\$\w*){_TERMINATED}
    | (?P<field>\.[^\W\d]\w*){_TERMINATED}
    | (?P<dot>\.)
    | (?P<word>[^\W\d]\w*){_TERMINATED}
    """,
    re.VERBOSE,
)


class Token(NamedTuple):
    """kind: text, open, the name of a group above, or end. Spaces between tokens count: they part fields."""

    kind: str
    text: str
    line: int


def tokens(source: str) -> Iterator[Token]:
    """Raises GoTemplateError."""
    position, line, trims = 0, 1, False
    while True:
        begin = source.find(_OPEN, position)
        text = source[position:] if begin < 0 else source[position:begin]
        inner = begin + len(_OPEN)
        shown = text.lstrip(_SPACE) if trims else text
        if begin >= 0 and source[inner : inner + 1] == "-" and source[inner + 1 : inner + 2] in tuple(_SPACE):
            shown = shown.rstrip(_SPACE)
            inner += 2
        if shown:
            yield Token("text", shown, line)
        if begin < 0:
            yield Token("end", "", line)
            return
        line += text.count("\n")
        if source.startswith("/*", inner):
            end, trims = _comment_end(source, inner, line)
        else:
            end = inner
            yield Token("open", _OPEN, line)
            for token in _action_tokens(source, inner, line + source.count("\n", begin, inner)):
                yield token
                end += len(token.text)
            trims = token.text != "}}"
        line += source.count("\n", begin, end)
        position = end


def _comment_end(source: str, begin: int, line: int) -> tuple[int, bool]:
    """(the position behind it, whether space is trimmed there)"""
    end = source.find("*/", begin + 2)
    if end < 0:
        raise GoTemplateError("unclosed comment", line)
    match = _TOKEN.match(source, end + 2)
    if match is None or match.lastgroup != "close":
        raise GoTemplateError("comment ends before closing delimiter", line)
    return match.end(), match.group() != "}}"


def _action_tokens(source: str, begin: int, line: int) -> Iterator[Token]:
    """Up to what closes the action."""
    position = begin
    while (match := _TOKEN.match(source, position)) is not None:
        kind = match.lastgroup or ""
        yield Token(kind, match.group(), line)
        if kind == "close":
            return
        line += match.group().count("\n")
        position = match.end()
    if position >= len(source):
        raise GoTemplateError("unclosed action", line)
    raise GoTemplateError(f"unexpected {source[position]!a} in action", line)
