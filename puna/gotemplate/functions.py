"""The functions that every template has: https://pkg.go.dev/text/template#hdr-Functions.

`and` and `or` are not here: they need not evaluate all their arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias
from urllib.parse import quote_plus

from puna.gotemplate.errors import GoTemplateError
from puna.gotemplate.printing import formatted, sprint, sprintf
from puna.gotemplate.values import Struct, is_true, type_name

Functions: TypeAlias = Mapping[str, Callable[..., Any]]

LAZY = ("and", "or")
_HTML = str.maketrans({"\0": "\ufffd", '"': "&#34;", "'": "&#39;", "&": "&amp;", "<": "&lt;", ">": "&gt;"})
_JS = {"\\": r"\\", "'": r"\'", '"': r"\"", "<": r"\u003C", ">": r"\u003E", "&": r"\u0026", "=": r"\u003D"}


def _len(value: Any) -> int:
    if isinstance(value, str):
        return len(value.encode())
    if isinstance(value, list | tuple | dict):
        return len(value)
    raise GoTemplateError(f"len of type {type_name(value)}")


def _index(value: Any, *indices: Any) -> Any:
    for index in indices:
        if isinstance(value, dict) and isinstance(index, str):
            value = value.get(index)
        elif isinstance(value, list | tuple | str):
            items = value.encode() if isinstance(value, str) else value
            value = items[_checked(index, len(items) - 1)]
        else:
            raise GoTemplateError(f"can't index {type_name(value)} with {type_name(index)}")
    return value


def _slice(value: Any, *indices: Any) -> Any:
    if not isinstance(value, list | tuple | str) or len(indices) > (2 if isinstance(value, str) else 3):
        raise GoTemplateError(f"can't slice {type_name(value)} with {len(indices)} numbers")
    items = value.encode() if isinstance(value, str) else value
    bounds = [_checked(index, len(items)) for index in indices]
    begin, end = (*bounds[:2], 0, len(items))[:2] if len(bounds) > 1 else (sum(bounds), len(items))
    if begin > end:
        raise GoTemplateError(f"invalid slice index: {begin} > {end}")
    part = items[begin:end]
    return part.decode(errors="replace") if isinstance(part, bytes) else part


def _checked(index: Any, largest: int) -> int:
    if not isinstance(index, int) or isinstance(index, bool):
        raise GoTemplateError(f"cannot index slice/array with type {type_name(index)}")
    if not 0 <= index <= largest:
        raise GoTemplateError(f"index out of range: {index}")
    return index


def _eq(value: Any, *others: Any) -> bool:
    if not others:
        raise GoTemplateError("missing argument for comparison")
    return any(_equal(value, other) for other in others)


def _equal(value: Any, other: Any) -> bool:
    if type(value) is str and type(other) is str:  # roles of messages, again and again
        return value == other
    if value is None or other is None:
        return value is other
    for operand in (value, other):
        if isinstance(operand, list | dict):
            raise GoTemplateError("uncomparable type " + type_name(operand))
    if type_name(value) != type_name(other):
        raise GoTemplateError("incompatible types for comparison")
    return bool(value.fields == other.fields if isinstance(value, Struct) else value == other)


def _lt(value: Any, other: Any) -> bool:
    if type_name(value) != type_name(other):
        raise GoTemplateError("incompatible types for comparison")
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise GoTemplateError("invalid type for comparison")
    return bool(value < other)


def _printf(pattern: Any, *values: Any) -> str:
    if not isinstance(pattern, str):
        raise GoTemplateError(f"wrong type for value; expected string; got {type_name(pattern)}")
    return sprintf(pattern, values)


def _js(*values: Any) -> str:
    def escaped(char: str) -> str:
        return f"\\u{ord(char):04X}" if not char.isprintable() and char != " " else char

    return "".join(_JS.get(char) or escaped(char) for char in sprint(values))


STANDARD: Functions = {
    "not": lambda value: not is_true(value),
    "len": _len,
    "index": _index,
    "slice": _slice,
    "eq": _eq,
    "ne": lambda value, other: not _equal(value, other),
    "lt": _lt,
    "le": lambda value, other: _lt(value, other) or _equal(value, other),
    "gt": lambda value, other: not (_lt(value, other) or _equal(value, other)),
    "ge": lambda value, other: not _lt(value, other),
    "print": lambda *values: sprint(values),
    "println": lambda *values: " ".join(map(formatted, values)) + "\n",
    "printf": _printf,
    "html": lambda *values: sprint(values).translate(_HTML),
    "js": _js,
    "urlquery": lambda *values: quote_plus(sprint(values)),
}
