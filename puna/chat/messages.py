"""What a conversation is made of."""

from __future__ import annotations

from typing import Any

import msgspec


class CalledFunction(msgspec.Struct):
    """Clients rely on arguments, even if there are none."""

    name: str
    arguments: dict[str, Any] = {}
    index: int | msgspec.UnsetType = msgspec.UNSET
    """Of the call among those of its reply."""


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
