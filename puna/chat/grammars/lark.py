"""Grammars that clients write, in llguidance's dialect of Lark."""

from __future__ import annotations

import re

from puna.chat.errors import PromptError
from puna.chat.grammars.sizes import check_terminals

_MAX_CHARS = 100_000
_PIECES = re.compile(
    r"""
    (?P<comment> (\#|//)[^\n]* )
    | (?P<text> "(\\.|[^"\\\n])*+"? )
    | (?P<regex> /(\\.|[^/\\])++/? )
    | (?P<token> <[^<>\s]+> )
    | (?P<grammar> @[\w\-]+ )
    | (?P<directive> %(llguidance|lark)\b )
    | (?P<attributes> \b(max_tokens|temperature|stop)\s*= )
    """,
    re.VERBOSE,
)
_REFUSED = {
    "token": "control tokens",
    "grammar": "other grammars",
    "directive": "%llguidance and %lark",
    "attributes": "max_tokens, temperature and stop",
}


def check_lark(grammar: str) -> None:
    """Raises PromptError for what would reach beyond the text that the grammar is to describe, and for
    terminals that are too large.
    """
    if len(grammar) > _MAX_CHARS:
        raise PromptError(f"the grammar has more than {_MAX_CHARS} characters")
    for match in _PIECES.finditer(grammar):
        if (name := str(match.lastgroup)) in _REFUSED:
            raise PromptError(f"a grammar must not use {_REFUSED[name]}, as in {match.group()[:40]!r}")
    check_terminals(grammar)
