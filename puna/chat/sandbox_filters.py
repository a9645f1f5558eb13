"""The filters that chat templates may use."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

from puna.chat.sandbox_limits import check_size, check_values, check_width, expected_size

# Jinja's own, less those that make much out of little and those that chat templates have no use for.
# fmt: off
KEPT = (
    "abs", "attr", "capitalize", "count", "d", "default", "dictsort", "e", "escape", "first", "float",
    "groupby", "int", "items", "last", "length", "list", "lower", "map", "max", "min", "reject",
    "rejectattr", "reverse", "round", "safe", "select", "selectattr", "sort", "title", "trim",
    "truncate", "unique", "upper", "urlencode", "wordcount",
)
# fmt: on


def printable(value: Any) -> Any:
    """Called with everything that a template prints."""
    if not isinstance(value, str):
        check_values(value)
    return value


def _string(value: Any) -> str:
    text = str(printable(value))
    check_size(len(text))
    return text


def _join(values: Iterable[Any], separator: str = "", attribute: str | int | None = None) -> str:
    texts = [_string(value if attribute is None else value[attribute]) for value in values]
    check_size(expected_size(str(separator), "join", (texts,)))
    return str(separator).join(texts)


def _replace(value: Any, old: str, new: str, count: int = -1) -> str:
    text = _string(value)
    check_size(expected_size(text, "replace", (old, new)))
    return text.replace(str(old), str(new), count)


def _indent(value: Any, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
    text = _string(value)
    check_size(width if isinstance(width, int) else len(width))
    prefix = " " * width if isinstance(width, int) else width
    check_size(len(text) + len(prefix) * (text.count("\n") + 1))
    head, *lines = text.split("\n")
    indented = [prefix + line if line or blank else line for line in lines]
    return "\n".join([prefix + head if first else head, *indented])


def _format(pattern: Any, *args: Any, **kwargs: Any) -> str:
    text = _string(pattern)
    check_width(text)
    return text % (kwargs or args)


def _tojson(
    value: Any,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
    ensure_ascii: bool = False,
) -> str:
    """Unlike Jinja's, without escapes for HTML."""
    check_values(value)
    check_size(indent or 0)
    return json.dumps(
        value, indent=indent, separators=separators, sort_keys=sort_keys, ensure_ascii=ensure_ascii
    )


OWN: dict[str, Callable[..., Any]] = {
    "format": _format,
    "indent": _indent,
    "join": _join,
    "replace": _replace,
    "string": _string,
    "tojson": _tojson,
}
