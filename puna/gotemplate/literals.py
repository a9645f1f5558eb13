"""Values of constants, as Go writes them."""

from __future__ import annotations

import re

from puna.gotemplate.errors import GoTemplateError
from puna.gotemplate.lexer import Token

_ESCAPE = re.compile(
    rb"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-7]{3})|(.))", re.DOTALL
)
_SIMPLE = {b"a": b"\a", b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}


def string_value(token: Token) -> str:
    """Of what is in quotes or backquotes. Raises GoTemplateError."""
    inner = token.text[1:-1]
    if token.kind == "raw":
        return inner.replace("\r", "")
    if "\\" not in inner:
        return inner
    try:
        return _ESCAPE.sub(_unescaped, inner.encode()).decode(errors="replace")
    except (KeyError, ValueError) as error:
        raise GoTemplateError(f"invalid syntax in {token.text}", token.line) from error


def _unescaped(match: re.Match[bytes]) -> bytes:
    """Bytes may be parts of characters."""
    hexadecimal, short, long, octal, letter = match.groups()
    if hexadecimal or octal:
        return bytes([int(hexadecimal, 16) if hexadecimal else int(octal, 8)])
    if letter:
        return letter if letter in (b"\\", b'"', b"'") else _SIMPLE[letter]
    return chr(int(short or long, 16)).encode()


def number_value(token: Token) -> int | float:
    """Of a number, or of a character. Raises GoTemplateError."""
    text = token.text.replace("_", "")
    try:
        if token.kind == "char":
            return ord(string_value(token))
        if re.fullmatch(r"[+-]?0[0-7]+", text):
            return int(text, 8)
        if re.fullmatch(r"[+-]?(?:\d+|0[xX].*|0[bB].*|0[oO].*)", text):
            return int(text, 0)
        return float(text)
    except (TypeError, ValueError) as error:
        raise GoTemplateError(f"bad number {token.text}", token.line) from error
