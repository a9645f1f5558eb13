"""Builds the tree of a template."""

from __future__ import annotations

from collections.abc import Collection

from puna.gotemplate.errors import GoTemplateError
from puna.gotemplate.lexer import Token, tokens
from puna.gotemplate.literals import number_value, string_value
from puna.gotemplate.nodes import (
    Action,
    Body,
    Break,
    Chain,
    Command,
    Constant,
    Continue,
    Dot,
    Field,
    Function,
    If,
    Nil,
    Node,
    Operand,
    Pipeline,
    Range,
    TemplateCall,
    Text,
    Variable,
    With,
)

_KEYWORDS = frozenset(
    ("if", "else", "end", "range", "with", "define", "template", "block", "break", "continue")
)
_BRANCHES: dict[str, type[If] | type[With] | type[Range]] = {"if": If, "with": With, "range": Range}


def parse(source: str, functions: Collection[str]) -> dict[str, Body]:
    """The templates by name; that of the whole is "". functions: their names. Raises GoTemplateError."""
    return _Parser(source, functions).parse()


class _Parser:
    def __init__(self, source: str, functions: Collection[str]) -> None:
        self._tokens = tokens(source)
        self._functions = functions
        self._ahead: list[Token] = []
        self._templates: dict[str, Body] = {}
        self._variables = [""]
        self._num_ranges = 0

    def parse(self) -> dict[str, Body]:
        body, ended = self._body(outermost=True)
        if ended.kind != "end":
            raise _unexpected(ended)
        self._templates[""] = body
        return self._templates

    # Tokens

    def _next(self) -> Token:
        return self._ahead.pop() if self._ahead else next(self._tokens)

    def _next_solid(self) -> Token:
        while (token := self._next()).kind == "space":
            pass
        return token

    def _back(self, token: Token) -> None:
        self._ahead.append(token)

    def _take(self, kind: str, text: str = "") -> bool:
        """Whether such a token comes next, which then is taken."""
        token = self._next_solid()
        if token.kind == kind and (not text or token.text == text):
            return True
        self._back(token)
        return False

    def _expect(self, kind: str) -> Token:
        token = self._next_solid()
        if token.kind != kind:
            raise _unexpected(token)
        return token

    # Bodies

    def _body(self, *, outermost: bool = False) -> tuple[Body, Token]:
        """(the nodes up to `else`, `end` or the end of the source, the token that ended them)"""
        body: Body = []
        while True:
            token = self._next()
            if token.kind == "text":
                body.append(Text(token.text))
                continue
            if token.kind == "end":
                return body, token
            first = self._next_solid()
            if first.kind == "word" and first.text in ("else", "end"):
                return body, first
            if first.kind == "word" and first.text == "define":
                if not outermost:
                    raise _unexpected(first)
                self._define(self._name())
            else:
                body.append(self._node(first))

    def _node(self, first: Token) -> Node:
        keyword = first.text if first.kind == "word" else ""
        if keyword in _BRANCHES:
            return self._branch(keyword)
        if keyword == "template":
            return self._call(self._name(), first.line)
        if keyword == "block":
            name = self._name()
            call = self._call(name, first.line)
            self._define(name, closed=True)
            return call
        if keyword in ("break", "continue"):
            if not self._num_ranges:
                raise GoTemplateError(f"{{{{{keyword}}}}} outside {{{{range}}}}", first.line)
            self._expect("close")
            return Break() if keyword == "break" else Continue()
        self._back(first)
        return Action(self._pipeline("close"))

    def _branch(self, keyword: str) -> Node:
        """Its variables are known up to its end."""
        known = len(self._variables)
        pipeline = self._pipeline("close", ranges=keyword == "range")
        self._num_ranges += keyword == "range"
        body, ended = self._body()
        self._num_ranges -= keyword == "range"
        otherwise = self._otherwise(keyword) if ended.text == "else" else self._closed(ended, [])
        del self._variables[known:]
        return _BRANCHES[keyword](pipeline, body, otherwise)

    def _otherwise(self, keyword: str) -> Body:
        """`{{else if}}` and `{{else with}}` begin a branch that shares the end."""
        if keyword != "range":
            token = self._next_solid()
            if token.kind == "word" and token.text == keyword:
                return [self._branch(keyword)]
            self._back(token)
        self._expect("close")
        body, ended = self._body()
        return self._closed(ended, body)

    def _closed(self, ended: Token, body: Body) -> Body:
        if ended.text != "end":
            raise _unexpected(ended)
        self._expect("close")
        return body

    def _name(self) -> str:
        token = self._next_solid()
        if token.kind not in ("string", "raw"):
            raise _unexpected(token)
        return string_value(token)

    def _call(self, name: str, line: int) -> TemplateCall:
        if self._take("close"):
            return TemplateCall(name, None, line)
        return TemplateCall(name, self._pipeline("close"), line)

    def _define(self, name: str, *, closed: bool = False) -> None:
        """closed: its head is read already."""
        if not closed:
            self._expect("close")
        outer, self._variables = self._variables, [""]
        num_ranges, self._num_ranges = self._num_ranges, 0
        body, ended = self._body()
        self._closed(ended, body)
        self._variables, self._num_ranges = outer, num_ranges
        if body or name not in self._templates:
            self._templates[name] = body

    # Pipelines

    def _pipeline(self, end: str, *, ranges: bool = False) -> Pipeline:
        """end: the kind of the token behind it, or its text."""
        token = self._next_solid()
        self._back(token)
        pipeline = Pipeline(token.line)
        self._declaration(pipeline, ranges)
        while True:
            token = self._next_solid()
            if end in (token.kind, token.text):
                break
            self._back(token)
            pipeline.commands.append(self._command())
            if not self._take("punctuation", "|"):
                token = self._next_solid()
                if end not in (token.kind, token.text):
                    raise _unexpected(token)
                break
        if not pipeline.commands:
            raise GoTemplateError("missing value", token.line)
        for command in pipeline.commands[1:]:
            if isinstance(command.operands[0], Constant | Dot | Nil):
                raise GoTemplateError("a value in a pipeline is no function", pipeline.line)
        if not pipeline.assigns:
            self._variables += pipeline.variables
        return pipeline

    def _declaration(self, pipeline: Pipeline, ranges: bool) -> None:
        """`$x :=`, `$x =`; for ranges also `$i, $x :=`."""
        taken: list[Token] = []
        while (variable := self._taken(taken)).kind == "variable":
            pipeline.variables.append(variable.text[1:])
            sign = self._taken(taken)
            if sign.kind == "declare" or sign.text == "=":
                pipeline.assigns = sign.text == "="
                if pipeline.assigns:
                    for name in pipeline.variables:
                        self._check_known(name, sign.line)
                return
            if sign.text != "," or not ranges or len(pipeline.variables) > 1:
                break
        pipeline.variables.clear()
        self._ahead += reversed(taken)

    def _taken(self, taken: list[Token]) -> Token:
        """The next token but spaces; what was read is added to `taken`."""
        taken.append(self._next())
        while taken[-1].kind == "space":
            taken.append(self._next())
        return taken[-1]

    def _command(self) -> Command:
        operands: list[Operand] = []
        while (operand := self._operand()) is not None:
            operands.append(operand)
            token = self._next()
            if token.kind != "space":
                self._back(token)
                if token.kind != "close" and token.text not in ("|", ")"):
                    raise _unexpected(token)
                break
        if not operands:
            raise GoTemplateError("empty command", self._next_solid().line)
        return Command(operands)

    def _operand(self) -> Operand | None:
        operand = self._term()
        names = []
        while operand is not None and (token := self._next()).kind == "field":
            names.append(token.text[1:])
        if operand is None:
            return None
        self._back(token)
        if not names:
            return operand
        match operand:
            case Field() | Variable():
                operand.names += names
                return operand
            case Constant() | Nil() | Dot():
                raise _unexpected(token)
        return Chain(operand, names)

    def _term(self) -> Operand | None:
        """None: no operand comes."""
        token = self._next_solid()
        match token.kind:
            case "word":
                return self._word(token)
            case "dot":
                return Dot()
            case "field":
                return Field([token.text[1:]])
            case "variable":
                self._check_known(token.text[1:], token.line)
                return Variable(token.text[1:], [])
            case "string" | "raw":
                return Constant(string_value(token))
            case "char" | "number":
                return Constant(number_value(token))
            case "punctuation" if token.text == "(":
                return self._pipeline(")")
        self._back(token)
        return None

    def _word(self, token: Token) -> Operand:
        if token.text in ("true", "false"):
            return Constant(token.text == "true")
        if token.text == "nil":
            return Nil()
        if token.text in _KEYWORDS:
            raise _unexpected(token)
        if token.text not in self._functions:
            raise GoTemplateError(f'function "{token.text}" not defined', token.line)
        return Function(token.text)

    def _check_known(self, name: str, line: int) -> None:
        if name not in self._variables:
            raise GoTemplateError(f'undefined variable "${name}"', line)


def _unexpected(token: Token) -> GoTemplateError:
    return GoTemplateError("unexpected " + (f'"{token.text}"' if token.text else "end"), token.line)
