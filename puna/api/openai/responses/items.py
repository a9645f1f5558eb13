"""What a response is made of."""

from __future__ import annotations

import secrets
from typing import Any, Literal

import msgspec

Status = Literal["in_progress", "completed", "incomplete", "failed"]


class SummaryText(msgspec.Struct, tag_field="type", tag="summary_text"):
    """Thoughts: the model's own, whole."""

    text: str


class OutputText(msgspec.Struct, tag_field="type", tag="output_text"):
    """What the model says."""

    text: str
    annotations: list[Any] = []
    logprobs: list[Any] = []


class ReasoningItem(msgspec.Struct, kw_only=True, tag_field="type", tag="reasoning"):
    """encrypted_content: the thoughts again, in plain text, for clients that send only this back."""

    id: str
    summary: list[SummaryText] = []
    encrypted_content: str | None = None


class MessageItem(msgspec.Struct, kw_only=True, tag_field="type", tag="message"):
    """Something said."""

    id: str
    status: Status
    role: Literal["assistant"] = "assistant"
    content: list[OutputText] = []


class FunctionCallItem(msgspec.Struct, kw_only=True, tag_field="type", tag="function_call"):
    """arguments: a JSON text."""

    id: str
    status: Status
    call_id: str
    name: str
    namespace: str | msgspec.UnsetType = msgspec.UNSET
    arguments: str


class CustomCallItem(msgspec.Struct, kw_only=True, tag_field="type", tag="custom_tool_call"):
    """A call of a tool that takes a text."""

    id: str
    status: Status
    call_id: str
    name: str
    namespace: str | msgspec.UnsetType = msgspec.UNSET
    input: str


CallItem = FunctionCallItem | CustomCallItem
OutputItem = ReasoningItem | MessageItem | FunctionCallItem | CustomCallItem


def new_id(prefix: str) -> str:
    """Of a response or an item."""
    return f"{prefix}_{secrets.token_hex(16)}"
