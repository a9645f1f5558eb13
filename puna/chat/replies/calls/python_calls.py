"""Calls in Python's syntax: `[f(a='x', b=[1, True, None]), g()]`. Shared by families that write such:
parse_calls() reads them, call_term() and calls_term() are what a grammar lets through.

What is read: names may have dots and dashes, and stand in quotes if they are no such names; arguments are
keywords; values are Python's literals or JSON; what follows `f(` is read in one pass. What may be written:
strings as Python has them, lists and dictionaries as JSON, which are held to their whole schemas.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Sequence
from typing import Any

from puna.chat.grammars.builder import GrammarBuilder, more_calls, one_of
from puna.chat.replies.calls.parameters import (
    Schema,
    alternatives,
    joined,
    parameters_of,
    says_nothing_but,
)
from puna.chat.replies.pieces import Call
from puna.chat.replies.reader import NotACall
from puna.chat.replies.tagged import CallReader
from puna.chat.tools import Tool

_MAX_DEPTH = 100
_WORD = r"[^\s\[\](){}=,:'\"]+"
_TOKEN = re.compile(
    rf"""\s*(?: (?P<string> '[^'\\]*(?:\\.[^'\\]*)*' | "[^"\\]*(?:\\.[^"\\]*)*" )
    | (?P<word> {_WORD} ) | (?P<mark> [\[\](){{}}=,:] ) | (?P<end> \Z ) )""",
    re.VERBOSE | re.DOTALL,
)
_NUMBER = re.compile(r"[-+]?\d[\d_]*(?P<fraction>\.\d*)?(?P<power>[eE][-+]?\d+)?|[-+]?\.\d+(?:[eE][-+]?\d+)?")
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|x([0-9a-fA-F]{2})|(.))", re.DOTALL)
_ESCAPES = {
    "n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "a": "\a", "v": "\v", "0": "\0", "\n": "",
    "\\": "\\", "'": "'", '"': '"', "/": "/",
}  # fmt: skip
_WORDS = {"True": True, "true": True, "False": False, "false": False, "None": None, "null": None}
_STRING = r"""'([^'\\\n\r]|\\[\\'"nrt])*'|"([^"\\\n\r]|\\[\\'"nrt])*\""""


def parse_calls(text: str) -> list[Call] | None:
    """What a list of calls says, or calls with only commas or line ends between them; None if it is no such
    thing. Takes time linear in the text.
    """
    try:
        return _Reader(text).calls()
    except (_NotCalls, ValueError, OverflowError):
        return None


def give_calls(reader: CallReader, text: str) -> None:
    """Gives the calls. Raises NotACall if the text is none."""
    calls = parse_calls(text)
    if calls is None:
        raise NotACall
    for call in calls:
        reader.give(call.name, call.arguments)


def written_call(call: Call) -> str:
    """As the grammar lets it through, in what it has in common with Python."""
    arguments = (f"{_spelled(name)}={_written(value)}" for name, value in call.arguments.items())
    return f"{_spelled(call.name)}({', '.join(arguments)})"


def call_term(g: GrammarBuilder, tool: Tool) -> str:
    """A term: a call of the tool."""
    arguments = [
        (f"{_keyword(g, parameter.name)} {_python_value(g, tool, parameter.schema)}", parameter.required)
        for parameter in parameters_of(tool)
    ]
    members = joined(
        g, [(g.rule("argument", term), required) for term, required in arguments], g.regex(", ?")
    )
    return g.rule("call", f'{g.plain(_spelled(tool.function.name) + "(")} {members} ")"')


def calls_term(g: GrammarBuilder, tools: Sequence[Tool], *, parallel: bool, separator: str = ", ?") -> str:
    """A term: calls of these tools; just one, unless `parallel`. separator: a regular expression."""
    call = g.rule("any_call", " | ".join(call_term(g, tool) for tool in tools))
    return g.rule("calls", f"{call} {more_calls(f'{g.regex(separator)} {call}')}") if parallel else call


def _python_value(g: GrammarBuilder, tool: Tool, schema: Schema) -> str:
    return one_of(list(dict.fromkeys(_value(g, tool, each) for each in alternatives(schema))))


def _value(g: GrammarBuilder, tool: Tool, schema: Schema) -> str:
    if "const" in schema:
        value = schema["const"]
        if isinstance(value, str):
            return f"{g.plain(repr(value))} | {g.plain(json.dumps(value, ensure_ascii=False))}"
        if value is None or isinstance(value, bool):
            return f'"{value}"'
    if says_nothing_but(schema, "type"):
        match schema.get("type"):
            case "string":
                return g.regex(_STRING)
            case "boolean":
                return '"True" | "False"'
            case "null":
                return '"None"'
    return g.argument(tool.function, schema)


def _written(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list | dict) else repr(value)


def _keyword(g: GrammarBuilder, name: str) -> str:
    return g.plain(_spelled(name) + "=")


def _spelled(name: str) -> str:
    return name if re.fullmatch(_WORD, name) else json.dumps(name, ensure_ascii=False)


class _NotCalls(Exception):
    pass


class _Reader:
    """Raises _NotCalls, ValueError, OverflowError."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0
        self._kind, self._token = "", ""
        self._advance()

    def calls(self) -> list[Call]:
        """All."""
        in_list = self._takes("[")
        calls: list[Call] = []
        while self._kind in ("word", "string"):
            calls.append(self._call())
            if not self._takes(",") and in_list:
                break
        if in_list:
            self._expect("]")
        if self._kind != "end" or not calls:
            raise _NotCalls
        return calls

    def _call(self) -> Call:
        name = self._name()
        self._expect("(")
        arguments: dict[str, Any] = {}
        while not self._takes(")"):
            keyword = self._name()
            self._expect("=")
            arguments[keyword] = self._value(0)
            if not self._takes(","):
                self._expect(")")
                break
        return Call(name, arguments)

    def _value(self, depth: int) -> Any:
        if depth > _MAX_DEPTH:
            raise _NotCalls
        kind, token = self._kind, self._token
        self._advance()
        match kind, token:
            case "string", _:
                return _unescaped(token)
            case "word", _:
                return _WORDS[token] if token in _WORDS else _number(token)
            case _, "[":
                return self._items("]", depth)
            case _, "(":
                return self._items(")", depth)
            case _, "{":
                return self._members(depth)
        raise _NotCalls

    def _items(self, close: str, depth: int) -> list[Any]:
        items: list[Any] = []
        while not self._takes(close):
            items.append(self._value(depth + 1))
            if not self._takes(","):
                self._expect(close)
                break
        return items

    def _members(self, depth: int) -> dict[str, Any]:
        members: dict[str, Any] = {}
        while not self._takes("}"):
            key = self._value(depth + 1)
            self._expect(":")
            members[key if isinstance(key, str) else str(key)] = self._value(depth + 1)
            if not self._takes(","):
                self._expect("}")
                break
        return members

    def _name(self) -> str:
        kind, token = self._kind, self._token
        if kind not in ("word", "string"):
            raise _NotCalls
        self._advance()
        return _unescaped(token) if kind == "string" else token

    def _takes(self, mark: str) -> bool:
        if self._kind != "mark" or self._token != mark:
            return False
        self._advance()
        return True

    def _expect(self, mark: str) -> None:
        if not self._takes(mark):
            raise _NotCalls

    def _advance(self) -> None:
        found = _TOKEN.match(self._text, self._position)
        if found is None or found.lastgroup is None:
            raise _NotCalls
        self._position = found.end()
        self._kind, self._token = found.lastgroup, found[found.lastgroup]


def _number(word: str) -> int | float:
    found = _NUMBER.fullmatch(word)
    if found is None:
        raise _NotCalls
    if found["fraction"] is None and found["power"] is None and "." not in word:
        return int(word)
    number = float(word)
    return number if math.isfinite(number) else math.copysign(sys.float_info.max, number)


def _unescaped(token: str) -> str:
    if "\\" not in token:
        return token[1:-1]
    text = _ESCAPE.sub(_character, token[1:-1])
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _character(escape: re.Match[str]) -> str:
    for digits in escape.groups()[:3]:
        if digits is not None:
            return chr(int(digits, 16))
    return _ESCAPES.get(escape[4], escape[0])
