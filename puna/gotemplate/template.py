"""A template that is parsed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from puna.gotemplate.errors import GoTemplateError
from puna.gotemplate.execution import execute
from puna.gotemplate.functions import LAZY, STANDARD, Functions
from puna.gotemplate.nodes import Body
from puna.gotemplate.parser import parse


class GoTemplate:
    """functions: beside the standard ones. Raises GoTemplateError for a source that is no template."""

    def __init__(self, source: str, functions: Functions) -> None:
        self._functions = {**STANDARD, **functions}
        try:
            self._bodies = parse(source, {*self._functions, *LAZY})
        except RecursionError as error:
            raise GoTemplateError("too deeply nested") from error

    @property
    def body(self) -> Body:
        """Of the whole, without the templates that it defines."""
        return self._bodies[""]

    @property
    def bodies(self) -> Iterator[Body]:
        """Of all templates in it."""
        return iter(self._bodies.values())

    def execute(self, value: Any, body: Body | None = None) -> str:
        """body: in place of its own. Raises GoTemplateError."""
        return execute(self._bodies, self.body if body is None else body, self._functions, value)
