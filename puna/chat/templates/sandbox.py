"""What chat templates may use: nothing that leads to Python, nothing that changes what they are given.

They may make lists grow and shrink, and get copies then.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

LIST_CHANGES = ("append", "pop")


class Sandbox(ImmutableSandboxedEnvironment):
    """Set up as the `transformers` library sets up its own, since templates are written for that one. Of all
    that changes anything, some need these methods of lists.
    """

    def __init__(self) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _Generation])
        self.filters["tojson"] = _tojson
        del self.globals["lipsum"]

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        return (type(obj) is list and attr in LIST_CHANGES) or super().is_safe_attribute(obj, attr, value)


def _tojson(
    value: Any,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
    ensure_ascii: bool = False,
) -> str:
    """Unlike Jinja's, without escapes for HTML."""
    return json.dumps(
        value,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
        ensure_ascii=ensure_ascii,
        default=_listed,
    )


def _listed(value: Any) -> list[Any]:
    """What filters like `map` give."""
    if isinstance(value, Iterator):
        return list(value)
    raise TypeError(f"{type(value).__name__} is not JSON")


class _Generation(Extension):
    """`{% generation %}` marks what the assistant says, for training; here it changes nothing."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)
