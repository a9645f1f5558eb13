"""Runs chat templates, which come with models from anywhere: no access to Python, bounded time and memory.

Jinja's sandbox keeps templates away from attributes and functions that they must not touch. It does not keep
them from looping for ever or from doubling a string forty times; so here every loop and call looks at the
clock, and what could make much out of little is checked first.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from typing import Any, cast

from jinja2 import nodes
from jinja2.exceptions import TemplateRuntimeError, TemplateSyntaxError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

from puna.chat import sandbox_filters
from puna.chat.sandbox_limits import check_size, check_width, expected_size

MAX_CPU_SECONDS = 2.0

_HIDDEN_METHODS = {"expandtabs", "format_map", "translate"}
_MAX_BITS = 1 << 16

_deadline: ContextVar[float] = ContextVar("deadline", default=math.inf)


class Sandbox(ImmutableSandboxedEnvironment):
    """Set up as the `transformers` library sets up its own, since templates are written for that one."""

    intercepted_binops = frozenset(["+", "*", "**", "%"])

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[loopcontrols, _Generation],
            finalize=sandbox_filters.printable,
        )
        kept = {name: self.filters[name] for name in sandbox_filters.KEPT}
        self.filters = {**kept, **sandbox_filters.OWN, "puna_timed": _timed}
        del self.globals["lipsum"]

    def start_clock(self) -> None:
        """Before each rendering, in the thread that renders."""
        _deadline.set(time.thread_time() + MAX_CPU_SECONDS)

    def compiled(self, source: str) -> Any:
        """Code of a template with the checks built in. Raises jinja2.TemplateSyntaxError."""
        return self.compile(_Checked().visit(self.parse(source)))

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        hidden = isinstance(obj, str) and attr in _HIDDEN_METHODS
        return not hidden and super().is_safe_attribute(obj, attr, value)

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805
        """The names must not collide with a template's keyword arguments."""
        _check_time()
        method = getattr(__obj, "__wrapped__", __obj)
        text, name = getattr(method, "__self__", None), getattr(method, "__name__", "")
        if isinstance(text, str):
            if name == "join":
                args = tuple(list(arg) for arg in args)
            check_size(expected_size(text, name, args))
        result = super().call(__context, __obj, *args, **kwargs)
        if isinstance(result, str):
            check_size(len(result))
        return result

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if isinstance(left, str) and operator == "%":
            check_width(left)
        elif isinstance(left, int) and isinstance(right, int):
            factor = right if operator == "**" else 2
            if left.bit_length() * factor + right.bit_length() > _MAX_BITS:
                raise TemplateRuntimeError("a number is too large")
        else:
            check_size(_size(left) * _size(right) if operator == "*" else _size(left) + _size(right))
        return super().call_binop(context, operator, left, right)


def join_output(pieces: Iterable[str]) -> str:
    """Raises jinja2.TemplateRuntimeError as soon as it becomes too large."""
    output, num_chars = [], 0
    for piece in pieces:
        num_chars += len(piece)
        check_size(num_chars)
        output.append(piece)
    return "".join(output)


def _size(value: Any) -> int:
    if isinstance(value, int):
        return max(value, 0)
    return len(value) if isinstance(value, (str, list, tuple)) else 1


def _check_time() -> None:
    if time.thread_time() > _deadline.get():
        raise TemplateRuntimeError("it takes too long")


def _timed(items: Iterable[Any]) -> Iterator[Any]:
    for item in items:
        _check_time()
        yield item


class _Checked(NodeTransformer):
    """Puts checks where the environment has no hook for them."""

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802
        if node.recursive:
            raise TemplateSyntaxError("recursive loops are not supported", node.lineno)
        self.generic_visit(node)
        node.iter = _filtered(node.iter, "puna_timed", node.lineno)
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _filtered(nodes.List(node.nodes, lineno=node.lineno), "join", node.lineno)

    def visit_AssignBlock(self, node: nodes.AssignBlock) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        node.filter = _filtered(node.filter, "string", node.lineno)
        return node


def _filtered(value: nodes.Node | None, name: str, line: int) -> nodes.Filter:
    return nodes.Filter(cast("nodes.Expr | None", value), name, [], [], None, None, lineno=line)


class _Generation(Extension):
    """`{% generation %}` marks what the assistant says, for training; here it changes nothing."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)
