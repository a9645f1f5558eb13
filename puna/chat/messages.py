"""What a conversation is made of."""

from __future__ import annotations

from typing import Any

import msgspec


class CalledFunction(msgspec.Struct, omit_defaults=True):
    name: str
    arguments: dict[str, Any] = {}
    index: int | None = None


class ToolCall(msgspec.Struct, omit_defaults=True):
    """A call that the assistant made."""

    function: CalledFunction
    id: str | None = None


class Message(msgspec.Struct, omit_defaults=True):
    """One turn."""

    role: str
    content: str = ""
    thinking: str | None = None
    """What the assistant thought before it answered."""
    tool_calls: list[ToolCall] = []
    tool_name: str | None = None
    """For role "tool": which function the content comes from."""
    tool_call_id: str | None = None
    images: list[bytes] = []


def template_variables(message: Message) -> dict[str, Any]:
    """As chat templates expect it. Earlier thoughts are not shown to the model again."""
    variables: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        variables["tool_calls"] = [_call_variables(call) for call in message.tool_calls]
    if message.tool_name is not None:
        variables["name"] = message.tool_name
    if message.tool_call_id is not None:
        variables["tool_call_id"] = message.tool_call_id
    return variables


def _call_variables(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.function.name, "arguments": call.function.arguments}
    variables: dict[str, Any] = {"type": "function", "function": function}
    if call.id is not None:
        variables["id"] = call.id
    return variables
