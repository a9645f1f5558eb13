"""The grammar of Modelfiles: lines of commands, whose values may be quoted and then go on over lines.

A quoted value ends where a line ends with its quotes; there are no escape sequences.
"""

from __future__ import annotations

import codecs
import re
from typing import NamedTuple

from puna.registry.modelfile.errors import ModelfileError

ROLES = ("system", "user", "assistant")
_COMMANDS = (
    *("from", "license", "template", "system", "adapter", "draft"),
    *("renderer", "parser", "parameter", "message", "requires"),
)

_BLANK = re.compile(r"[ \t\r\n]*")
_SPACE = re.compile(r"[ \t]*")
_WORD = re.compile(r"[^ \t\r\n]*")
_LINE = re.compile(r"[^\r\n]*")
_LINE_END = re.compile(r"\r\n|\r|\n")
_CLOSING = {quotes: re.compile(rf"{quotes}(?=[ \t]*(?:[\r\n]|\Z))") for quotes in ('"""', '"')}
_ENCODINGS = {
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}


class Command(NamedTuple):
    name: str
    """In lower case."""
    value: str
    key: str = ""
    """Of a parameter; the role of a message."""


def parse_commands(data: bytes) -> list[Command]:
    """UTF-8, or UTF-16 with a byte order mark. Raises ModelfileError."""
    scanner = _Scanner(printable(_decode(data)))
    commands = []
    while (command := scanner.next_command()) is not None:
        commands.append(command)
    return commands


def printable(text: str) -> str:
    """Without the characters that Modelfiles cannot have, quoted or not."""
    return "".join(character for character in text if character.isprintable() or character in "\t\r\n")


def _decode(data: bytes) -> str:
    for mark, encoding in _ENCODINGS.items():
        if data.startswith(mark):
            return data[len(mark) :].decode(encoding, errors="replace")
    return data.decode(errors="replace")


class _Scanner:
    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0

    def next_command(self) -> Command | None:
        self._take(_BLANK)
        while self._text.startswith("#", self._position):
            self._take(_LINE)
            self._take(_BLANK)
        if self._position == len(self._text):
            return None
        name = self._take(_WORD).lower()
        if name not in _COMMANDS:
            *others, last = (f'"{command}"' for command in _COMMANDS)
            raise self._error(f"command must be one of {', '.join(others)}, or {last}")
        key = ""
        if name in ("parameter", "message"):
            self._take(_SPACE)
            key = self._take(_WORD)
            if name == "message" and key not in ROLES:
                raise self._error('message role must be one of "system", "user", or "assistant"')
        return Command(name, self._value(), key)

    def _value(self) -> str:
        if not self._take(_SPACE):
            raise ModelfileError("unexpected EOF")
        quotes = next((quotes for quotes in _CLOSING if self._text.startswith(quotes, self._position)), None)
        if quotes is None:
            return self._take(_LINE).rstrip(" \t")
        start = self._position + len(quotes)
        closing = _CLOSING[quotes].search(self._text, start)
        if closing is None:
            raise ModelfileError("unexpected EOF")
        self._position = closing.end()
        return self._text[start : closing.start()]

    def _error(self, text: str) -> ModelfileError:
        line = 1 + len(_LINE_END.findall(self._text, 0, self._position))
        return ModelfileError(f"(line {line}): {text}")

    def _take(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self._text, self._position)
        assert match is not None  # each of the patterns matches nothing, too
        self._position = match.end()
        return match[0]
