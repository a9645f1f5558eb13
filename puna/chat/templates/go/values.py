"""Messages and tools as Go templates see them.

Fields are Ollama's: https://github.com/ollama/ollama/blob/main/docs/template.mdx
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from puna.chat.messages import Message, ToolCall
from puna.gotemplate.printing import to_json
from puna.gotemplate.values import JsonObject, Stringer, Struct

_TYPES = {
    "string": "string",
    "number": "number",
    "integer": "number",
    "boolean": "boolean",
    "array": "any[]",
    "object": "Record<string, any>",
    "null": "null",
}


class _JsonStruct(Struct, Stringer):
    """Prints as JSON, as the next two do."""

    def go_string(self) -> str:
        return to_json(self)


class _JsonList(list[Any], Stringer):
    def go_string(self) -> str:
        return to_json(self)


class _JsonMap(dict[str, Any], Stringer):
    def go_string(self) -> str:
        return to_json(self)


class _TypeNames(list[str], Stringer):
    """A single one prints, and is JSON, without the list around it."""

    def go_string(self) -> str:
        return self[0] if len(self) == 1 else "[" + " ".join(self) + "]" if self else ""


class Property(Struct):
    """A JSON Schema of which Ollama knows some keywords; others are left out.

    https://docs.ollama.com/api#chat-request-with-tools
    """

    def __init__(self, schema: Any) -> None:
        given = schema if isinstance(schema, Mapping) else {}
        types = given.get("type", [])
        self.types = _TypeNames(_strings([types] if isinstance(types, str) else types))
        self.any_of = [Property(each) for each in _listed(given.get("anyOf"))]
        inner = given.get("properties")
        properties = _properties(inner) if isinstance(inner, Mapping) else None
        fields = {
            "AnyOf": self.any_of,
            "Type": self.types,
            "Items": given.get("items"),
            "Description": given["description"] if isinstance(given.get("description"), str) else "",
            "Enum": _listed(given.get("enum")),
            "Properties": properties,
            "Required": _strings(given.get("required")),
        }
        written = {**fields, "Type": self.types[0] if len(self.types) == 1 else list(self.types)}
        json = JsonObject({_json_name(name): value for name, value in written.items() if value})
        super().__init__("api.ToolProperty", fields, json)


def tool_values(tools: Sequence[Mapping[str, Any]]) -> list[Any]:
    """tools: as tool_variables() gives them."""
    return _JsonList([_tool(tool) for tool in tools])


def _tool(tool: Mapping[str, Any]) -> Struct:
    function = tool["function"]
    schema = function["parameters"]
    given = schema.get("properties")
    named = _properties(given) if isinstance(given, Mapping) else {}
    parameters = {
        "Type": schema["type"] if isinstance(schema.get("type"), str) else "",
        "Defs": schema.get("$defs"),
        "Items": schema.get("items"),
        "Required": _strings(schema.get("required")),
        "Properties": _JsonMap(named),
    }
    written = {
        "type": parameters["Type"],
        **{_json_name(name): parameters[name] for name in ("Defs", "Items", "Required") if parameters[name]},
        "properties": parameters["Properties"],
    }
    fields = {
        "Name": function["name"],
        "Description": function["description"],
        "Parameters": _JsonStruct("api.ToolFunctionParameters", parameters, JsonObject(written)),
    }
    return _with_json_names(
        "api.Tool", {"Type": tool["type"], "Function": _with_json_names("api.ToolFunction", fields)}
    )


def _with_json_names(type_name: str, fields: Mapping[str, Any]) -> Struct:
    return _JsonStruct(type_name, fields, JsonObject({name.lower(): value for name, value in fields.items()}))


def message_values(messages: Sequence[Message]) -> list[Struct]:
    return [Struct("*api.Message", _message(message)) for message in messages]


def _message(message: Message) -> dict[str, Any]:
    return {
        "Role": message.role,
        "Content": message.content,
        "Thinking": message.thinking or "",
        "Images": list(message.images),
        "ToolCalls": [_call(call, i) for i, call in enumerate(message.tool_calls)],
        "ToolName": message.tool_name or "",
        "ToolCallID": message.tool_call_id or "",
    }


def _call(call: ToolCall, position: int) -> Struct:
    function = call.function
    fields = {
        "Index": function.index if isinstance(function.index, int) else position,
        "Name": function.name,
        "Arguments": _JsonMap(function.arguments),
    }
    return Struct("api.ToolCall", {"ID": call.id or "", "Function": Struct("api.ToolCallFunction", fields)})


def typescript_type(value: Any) -> str:
    """Of a property of a tool's parameters."""
    if not isinstance(value, Property):
        return "any"
    if value.any_of:
        return " | ".join(map(typescript_type, value.any_of))
    return " | ".join(_TYPES.get(name, "any") for name in value.types) or "any"


def _properties(schemas: Mapping[str, Any]) -> JsonObject:
    return JsonObject({str(name): Property(schema) for name, schema in schemas.items()})


def _json_name(name: str) -> str:
    return "$defs" if name == "Defs" else name[0].lower() + name[1:]


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _strings(value: Any) -> list[str]:
    return [each for each in _listed(value) if isinstance(each, str)]
