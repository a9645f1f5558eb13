"""Tools of responses: functions, functions in namespaces, and tools that take a text. What OpenAI's servers
do themselves, such as searching the web, is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec

from puna.api.checks import grammar_answer
from puna.api.errors import ApiError
from puna.api.requests import MOST_TOOLS
from puna.chat.grammars.answer import RegexAnswer
from puna.chat.messages import ToolCall
from puna.chat.tools import Tool, ToolFunction

T = TypeVar("T")

_INPUT = "input"
"""The one argument of a tool that takes a text, as the model sees it."""
_ENDS = ("_", ".", "-", "/")


class DeclaredTool(NamedTuple):
    """A tool as the client knows it. takes_text: in place of a JSON object."""

    name: str
    namespace: str = ""
    takes_text: bool = False


class _Declaration(msgspec.Struct):
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None
    format: dict[str, Any] | None = None


class _Namespace(msgspec.Struct):
    name: str
    tools: list[Any]


class OfferedTools:
    """Those of a request. Names in namespaces are one name for the model: `files` and `read` is
    `files__read`. ApiError (400) for declarations that make no sense.
    """

    def __init__(self, declarations: Sequence[Any]) -> None:
        self.tools: list[Tool] = []
        self._declared: dict[str, DeclaredTool] = {}  # by the name that the model sees
        for number, declaration in enumerate(declarations):
            self._offer(declaration, f"tools[{number}]")
        if len(self.tools) > MOST_TOOLS:
            raise ApiError(400, f"tools may be {MOST_TOOLS} at most, those in namespaces included")

    def declared(self, call: ToolCall) -> DeclaredTool:
        """What is called."""
        name = call.function.name
        return self._declared.get(name, DeclaredTool(name))

    def _offer(self, declaration: Any, where: str, namespace: str = "") -> None:
        kind = declaration.get("type") if isinstance(declaration, dict) else None
        match kind:
            case "function" | "custom":
                self._add(_converted(declaration, _Declaration, where), namespace, kind == "custom")
            case "namespace" if not namespace:
                group = _converted(declaration, _Namespace, where)
                for number, member in enumerate(group.tools):
                    self._offer(member, f"{where}.tools[{number}]", group.name)
            case str():
                pass  # what OpenAI's servers do
            case _:
                raise ApiError(400, f"{where} has no type")

    def _add(self, declaration: _Declaration, namespace: str, takes_text: bool) -> None:
        name = full_name(namespace, declaration.name)
        if not declaration.name or name in self._declared:
            raise ApiError(400, f"tools: there are several called {name!r}, or one has no name")
        self._declared[name] = DeclaredTool(declaration.name, namespace, takes_text)
        describe = _text_function if takes_text else _function
        self.tools.append(Tool(describe(name, declaration)))


def full_name(namespace: str, name: str) -> str:
    """What the model calls it."""
    separator = "" if not namespace or namespace.endswith(_ENDS) else "__"
    return f"{namespace}{separator}{name}"


def text_arguments(text: str) -> dict[str, Any]:
    """Of a tool that takes a text."""
    return {_INPUT: text}


def text_argument(call: ToolCall) -> str:
    """What a tool that takes a text is given."""
    return str(call.function.arguments.get(_INPUT, ""))


def _function(name: str, declaration: _Declaration) -> ToolFunction:
    return ToolFunction(
        name, declaration.description or "", declaration.parameters or {}, declaration.strict or False
    )


def _text_function(name: str, declaration: _Declaration) -> ToolFunction:
    """Its text is held to a regular expression, but only told of a Lark grammar: JSON's strings cannot have
    grammars of their own.
    """
    description, schema = declaration.description or "", {"type": "string"}
    wanted = declaration.format or {}
    if wanted.get("type") == "grammar":
        answer = grammar_answer(wanted)
        if isinstance(answer, RegexAnswer):
            schema["pattern"] = f"^(?:{answer.pattern})$"
        description += f"\n\n{_INPUT} must fit this grammar ({wanted['syntax']}):\n{wanted['definition']}"
    parameters = {
        "type": "object",
        "properties": {_INPUT: schema},
        "required": [_INPUT],
        "additionalProperties": False,
    }
    return ToolFunction(name, description, parameters, strict=True)


def _converted(value: Any, kind: type[T], where: str) -> T:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise ApiError(400, f"invalid request: {error} in {where}") from error
