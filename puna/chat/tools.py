"""Functions that a model may call."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec


class ToolFunction(msgspec.Struct, omit_defaults=True):
    name: str
    description: str = ""
    parameters: dict[str, Any] = {}
    """A JSON Schema of the arguments; the order of its keys is kept."""
    strict: bool = False

    def schema(self) -> dict[str, Any]:
        """The parameters; there are none if none are declared."""
        return self.parameters or {"type": "object", "properties": {}}


class Tool(msgspec.Struct, omit_defaults=True):
    function: ToolFunction
    type: str = "function"


class ToolChoice(msgspec.Struct, frozen=True, omit_defaults=True):
    """Whether tools are called, and which."""

    mode: Literal["auto", "none", "required"] = "auto"
    names: Annotated[list[str], msgspec.Meta(max_length=1024)] = []
    """Only these may be called; empty: all."""
    parallel: bool = True
    """Whether one reply may have several calls."""


def tool_variables(tool: Tool) -> dict[str, Any]:
    """As chat templates expect it."""
    function = tool.function
    variables = {
        "name": function.name,
        "description": function.description,
        "parameters": function.schema(),
    }
    return {"type": "function", "function": variables}
