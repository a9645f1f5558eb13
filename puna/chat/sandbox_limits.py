"""How large things in a chat template may become, and how large an operation would make them."""

from __future__ import annotations

import re
from typing import Any

from jinja2.exceptions import TemplateRuntimeError

MAX_TEXT = 1 << 24
"""Characters of a text, and entries of a list."""
MAX_VALUES = 1 << 20
"""Values inside one value, each counted as often as it occurs."""

_PADDING = {"center", "ljust", "rjust", "zfill"}
_WIDE = re.compile(r"\d{5}|\*|\{[^}]*\{")


def check_size(size: int) -> None:
    """Raises jinja2.TemplateRuntimeError if it is too large."""
    if size > MAX_TEXT:
        raise TemplateRuntimeError("a text or a list becomes too large")


def check_width(pattern: str) -> None:
    """Raises jinja2.TemplateRuntimeError for a format that may pad to a size that nobody needs."""
    if _WIDE.search(pattern):
        raise TemplateRuntimeError("a format with such a width is not supported")


def check_values(value: Any) -> None:
    """Raises jinja2.TemplateRuntimeError for a list that has a list in it twice, which has a list twice..."""
    pending, seen = [value], 0
    while pending:
        current = pending.pop()
        seen += 1
        if seen > MAX_VALUES:
            raise TemplateRuntimeError("a list or an object becomes too large")
        if isinstance(current, dict):
            pending.extend(current.values())
        elif isinstance(current, (list, tuple)):
            pending.extend(current)


def expected_size(text: str, method: str, args: tuple[Any, ...]) -> int:
    """Of what a method of `text` will return, if it could be much larger than `text`."""
    if method == "replace" and len(args) >= 2:
        old, new = str(args[0]), str(args[1])
        return len(text) + text.count(old) * len(new)
    if method == "join" and args:
        return sum(len(text) + (len(item) if isinstance(item, str) else 1) for item in args[0])
    if method in _PADDING and args and isinstance(args[0], int):
        return args[0]
    if method == "format":
        check_width(text)
    return len(text)
