"""Writes what a template makes of a value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from puna.gotemplate.errors import GoTemplateError
from puna.gotemplate.functions import LAZY, Functions
from puna.gotemplate.nodes import (
    Action,
    Body,
    Break,
    Chain,
    Command,
    Constant,
    Dot,
    Field,
    Function,
    If,
    Nil,
    Operand,
    Pipeline,
    Range,
    TemplateCall,
    Text,
    Variable,
    With,
)
from puna.gotemplate.printing import shown
from puna.gotemplate.values import Struct, field_of, is_true, type_name

_ABSENT = object()


def execute(templates: Mapping[str, Body], body: Body, functions: Functions, value: Any) -> str:
    """Of one body. Nothing bounds the time and the memory that it takes. Raises GoTemplateError."""
    written: list[str] = []
    run = _Run(templates, functions, written.append)
    try:
        run.call(body, value)
    except GoTemplateError as error:
        raise GoTemplateError(str(error), error.line or run.line) from error
    except RecursionError as error:
        raise GoTemplateError("templates call each other without end", run.line) from error
    return "".join(written)


class _BreakRange(Exception):
    pass


class _ContinueRange(Exception):
    pass


class _Run:
    def __init__(self, templates: Mapping[str, Body], functions: Functions, write: Any) -> None:
        self._templates = templates
        self._functions = functions
        self._write = write
        self._variables: list[tuple[str, Any]] = []
        self.line = 0

    def call(self, body: Body, dot: Any) -> None:
        """A template, which has variables of its own."""
        outer, self._variables = self._variables, [("", dot)]
        self._body(body, dot)
        self._variables = outer

    def _body(self, body: Body, dot: Any) -> None:
        for node in body:
            if isinstance(node, Text):
                self._write(node.text)
            elif isinstance(node, Action):
                value = self._pipeline(node.pipeline, dot)
                if not node.pipeline.variables:
                    self._write(value if type(value) is str else shown(value))
            elif isinstance(node, If | With):
                self._branch(node, dot)
            elif isinstance(node, Range):
                self._range(node, dot)
            elif isinstance(node, TemplateCall):
                self._template(node, dot)
            else:
                raise _BreakRange if isinstance(node, Break) else _ContinueRange

    def _branch(self, node: If | With, dot: Any) -> None:
        known = len(self._variables)
        value = self._pipeline(node.pipeline, dot)
        if not is_true(value):
            self._body(node.otherwise, dot)
        else:
            self._body(node.body, value if isinstance(node, With) else dot)
        del self._variables[known:]

    def _range(self, node: Range, dot: Any) -> None:
        pipeline, known = node.pipeline, len(self._variables)
        items = _items(self._value(pipeline, dot))
        if not items:
            self._body(node.otherwise, dot)
        with suppress(_BreakRange):
            for item in items:
                bound = item if len(pipeline.variables) > 1 else item[1:]
                for name, value in zip(pipeline.variables, bound, strict=False):
                    self._bind(name, value, pipeline.assigns)
                with suppress(_ContinueRange):
                    self._body(node.body, item[1])
                del self._variables[known:]
        del self._variables[known:]

    def _template(self, node: TemplateCall, dot: Any) -> None:
        if (body := self._templates.get(node.name)) is None:
            raise GoTemplateError(f'template "{node.name}" not defined', node.line)
        self.line = node.line
        self.call(body, None if node.pipeline is None else self._pipeline(node.pipeline, dot))

    def _bind(self, name: str, value: Any, assigns: bool) -> None:
        if not assigns:
            self._variables.append((name, value))
            return
        index = max(i for i, (known, _) in enumerate(self._variables) if known == name)
        self._variables[index] = (name, value)

    def _pipeline(self, pipeline: Pipeline, dot: Any) -> Any:
        value = self._value(pipeline, dot)
        for name in pipeline.variables:
            self._bind(name, value, pipeline.assigns)
        return value

    def _value(self, pipeline: Pipeline, dot: Any) -> Any:
        self.line = pipeline.line
        value = _ABSENT
        for command in pipeline.commands:
            value = self._command(command, dot, value)
        return value

    def _command(self, command: Command, dot: Any, piped: Any) -> Any:
        first = command.operands[0]
        if isinstance(first, Function):
            return self._function(first.name, command.operands[1:], dot, piped)
        if isinstance(first, Nil):
            raise GoTemplateError("nil is not a command")
        if len(command.operands) > 1 or piped is not _ABSENT:
            raise GoTemplateError("can't give argument to non-function")
        return self._operand(first, dot)

    def _function(self, name: str, operands: list[Operand], dot: Any, piped: Any) -> Any:
        if name in LAZY:
            return self._first(operands, dot, piped, wanted=name == "or")
        arguments = [self._operand(operand, dot) for operand in operands]
        if piped is not _ABSENT:
            arguments.append(piped)
        try:
            return self._functions[name](*arguments)
        except TypeError as error:
            raise GoTemplateError(f"wrong arguments for {name}") from error

    def _first(self, operands: list[Operand], dot: Any, piped: Any, *, wanted: bool) -> Any:
        """The first value that is as wanted, or the last."""
        value = _ABSENT
        for operand in operands:
            value = self._operand(operand, dot)
            if is_true(value) == wanted:
                return value
        value = value if piped is _ABSENT else piped
        if value is _ABSENT:
            raise GoTemplateError("wrong number of args for and, or: want at least 1")
        return value

    def _operand(self, operand: Operand, dot: Any) -> Any:
        if isinstance(operand, Constant):
            return operand.value
        if isinstance(operand, Field):
            return _fields(dot, operand.names)
        if isinstance(operand, Variable):
            return _fields(self._variable(operand.name), operand.names)
        if isinstance(operand, Pipeline):
            return self._pipeline(operand, dot)
        if isinstance(operand, Dot):
            return dot
        if isinstance(operand, Function):
            return self._function(operand.name, [], dot, _ABSENT)
        return (
            _fields(self._operand(operand.operand, dot), operand.names)
            if isinstance(operand, Chain)
            else None
        )

    def _variable(self, name: str) -> Any:
        for known, value in reversed(self._variables):
            if known == name:
                return value
        raise AssertionError(f"the parser does not know ${name}")


def _fields(value: Any, names: Iterable[str]) -> Any:
    for name in names:
        value = field_of(value, name)
    return value


def _items(value: Any) -> list[tuple[Any, Any]]:
    """(index or key, value) of what can be ranged over."""
    if value is None:
        return []
    if isinstance(value, dict):
        return [(key, value[key]) for key in sorted(value)]
    if isinstance(value, list | tuple):
        return list(enumerate(value))
    if isinstance(value, int) and not isinstance(value, bool):
        return [(i, i) for i in range(value)]
    if isinstance(value, Struct):
        raise GoTemplateError(f"range can't iterate over {value.type_name}")
    raise GoTemplateError(f"range can't iterate over {type_name(value)}")
