"""Tools that clients offer."""

from __future__ import annotations

from collections.abc import Sequence

import jsonschema_rs

from puna.chat.replies.pieces import Call
from puna.chat.tools import Tool, ToolFunction

WEATHER = Tool(
    ToolFunction(
        "get_weather",
        "What the weather is like.",
        {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "Where."},
                "days": {"type": "integer", "minimum": 1, "maximum": 14},
                "unit": {"enum": ["C°", 'F"', 7, None, True]},
                "detailed": {"type": "boolean"},
                "note": {"anyOf": [{"type": "string"}, {"type": "number"}, {"type": "null"}]},
                "hours": {"type": "array", "items": {"type": "number"}, "maxItems": 3},
                "place": {"$ref": "#/$defs/Place"},
                "code": {"type": "string", "pattern": "^[A-Z]{2}[0-9]?$"},
                "anything": {},
            },
            "required": ["city", "unit"],
            "additionalProperties": False,
            "$defs": {
                "Place": {
                    "type": "object",
                    "properties": {
                        "name": {"type": "string"},
                        "within": {"$ref": "#/$defs/Place"},
                        "at": {"type": "array", "items": {"type": "integer"}},
                    },
                    "required": ["name"],
                    "additionalProperties": False,
                }
            },
        },
    )
)
PING = Tool(ToolFunction("ping.all-hosts", "Are you there?"))
TOOLS = [WEATHER, PING]


def check_calls(calls: Sequence[Call], tools: Sequence[Tool] = TOOLS) -> None:
    """They are calls of the tools, with arguments that fit."""
    schemas = {tool.function.name: tool.function.parameters for tool in tools}
    for call in calls:
        jsonschema_rs.validate(schemas[call.name], call.arguments)
