"""Names of functions where a model cannot write them as they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from puna.chat.messages import Message, ToolCall
from puna.chat.tools import Tool


def renamed_tools(tools: Sequence[Tool], names: Mapping[str, str]) -> list[Tool]:
    """names: what each is called instead; who is not there keeps its name."""
    return [
        replace(tool, function=replace(tool.function, name=names.get(tool.function.name, tool.function.name)))
        for tool in tools
    ]


def renamed_messages(messages: Sequence[Message], names: Mapping[str, str]) -> list[Message]:
    """The same for functions that were called, and for those that results come from."""
    return [
        replace(
            message,
            tool_calls=[_renamed(call, names) for call in message.tool_calls],
            tool_name=names.get(message.tool_name or "", message.tool_name),
        )
        for message in messages
    ]


def _renamed(call: ToolCall, names: Mapping[str, str]) -> ToolCall:
    name = call.function.name
    return replace(call, function=replace(call.function, name=names.get(name, name)))
