"""How much text regular expressions and terminals ask for at least.

What llguidance has to look at at once grows with it, and it looks at no limit meanwhile: for
(a{1000}){1000}, a second or more, in which all replies of a step would wait.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter

from puna.chat.errors import PromptError

MAX_SIZE = 20_000
"""Characters, each alternative's and each optional part's included: some 20 ms."""
_MAX_TERMINALS = 1000
_REGEX = re.compile(
    r"""
    \\[pPxuU]\{[^}]{0,99}\} | \\. | \[\^?\]?(\\.|[^\]\\])*+\]?
    | (?P<open> \( ) | (?P<close> \) )
    | \{\s*(?P<count>\d*)[\d\s,]*\} | (?P<none> [|*+?^$] ) | .
    """,
    re.VERBOSE | re.DOTALL,
)
_LARK = re.compile(
    r"""
    (?P<comment> (\#|//)[^\n]* )
    | (?P<text> "(\\.|[^"\\\n])*+"? )
    | /(?P<regex> (\\.|[^/\\])++ )/?
    | ^[ \t]*[?!]?(?P<rule> [A-Za-z_][\w\-]*)(\.-?\d+)?(\[[^\]\n]*\])?[ \t]*:
    | (?P<name> [A-Za-z_][\w\-]* )
    | (?P<open> [(\[] ) | (?P<close> [)\]] )
    | (\{|~)\s*(?P<count>\d*)[\d\s.,]*\}?
    """,
    re.VERBOSE | re.MULTILINE,
)


class _Sum:
    """Of an expression that is read from the left."""

    def __init__(self) -> None:
        self._outer: list[int] = []
        self._total = self._last = 0

    def add(self, size: int) -> None:
        self._total += self._last
        self._last = min(size, MAX_SIZE + 1)

    def times(self, count: str) -> None:
        """The last one is repeated so often, at least."""
        self._last = min(self._last * max(int(count[:9] or 1), 1), MAX_SIZE + 1)

    def open(self) -> None:
        self._outer.append(self._total + self._last)
        self._total = self._last = 0

    def close(self) -> None:
        if self._outer:
            size = self._total + self._last
            self._total, self._last = self._outer.pop(), min(size, MAX_SIZE + 1)

    def end(self) -> int:
        while self._outer:
            self.close()
        return self._total + self._last


def check_regex(pattern: str, what: str = "the regular expression") -> None:
    """Raises PromptError for one that asks for too much."""
    if _regex_size(pattern) > MAX_SIZE:
        raise PromptError(f"{what} asks for more than {MAX_SIZE} characters, with all that it repeats")


def check_terminals(grammar: str) -> None:
    """The same for all terminals of a grammar in Lark, and the regular expressions in its rules."""
    bodies: dict[str, list[re.Match[str]]] = {}
    body: list[re.Match[str]] = []
    has_schemas = "%json" in grammar
    for match in _LARK.finditer(grammar):
        if match["rule"]:
            body = bodies.setdefault(match["rule"], [])
        else:
            body.append(match)
        if pattern := match["regex"] or (match["text"] if has_schemas else ""):  # which have patterns
            check_regex(pattern, f"the grammar's {match.group()[:40]}")
    terminals = {name: body for name, body in bodies.items() if name.isupper()}
    if len(terminals) > _MAX_TERMINALS:
        raise PromptError(f"the grammar has more than {_MAX_TERMINALS} terminals")
    sizes: dict[str, int] = {}
    for name in _from_the_last(terminals):
        sizes[name] = _terminal_size(terminals[name], sizes)
        if sizes[name] > MAX_SIZE:
            raise PromptError(f"the grammar's {name[:40]} asks for more than {MAX_SIZE} characters")


def _from_the_last(terminals: Mapping[str, list[re.Match[str]]]) -> list[str]:
    """Each behind those that are part of it."""
    parts = {
        name: {match["name"] for match in body if match["name"] in terminals}
        for name, body in terminals.items()
    }
    try:
        return list(TopologicalSorter(parts).static_order())
    except CycleError as error:
        raise PromptError(f"the grammar's terminal {error.args[1][0][:40]} is part of itself") from error


def _terminal_size(body: list[re.Match[str]], sizes: Mapping[str, int]) -> int:
    """sizes: of the terminals in it."""
    total = _Sum()
    for match in body:
        if match["regex"]:
            total.add(_regex_size(match["regex"]))
        elif match["text"]:
            total.add(len(match["text"]))
        elif match["name"]:
            total.add(sizes.get(match["name"], 1))
        else:
            _structure(match, total)
    return total.end()


def _regex_size(pattern: str) -> int:
    total = _Sum()
    for match in _REGEX.finditer(pattern):
        if not _structure(match, total) and not match["none"]:
            total.add(1)
    return total.end()


def _structure(match: re.Match[str], total: _Sum) -> bool:
    """Whether it was no more than that."""
    if match["open"]:
        total.open()
    elif match["close"]:
        total.close()
    elif match["count"] is not None:
        total.times(match["count"])
    else:
        return False
    return True
