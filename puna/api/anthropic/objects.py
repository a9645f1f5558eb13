"""The objects that Anthropic's clients get."""

from __future__ import annotations

import secrets
from typing import Any

import msgspec

from puna.api.replying.events import Finish

SIGNATURE = "puna"
"""Of thoughts: clients want one, and send it back. There is nothing to verify."""


class TextBlock(msgspec.Struct, tag_field="type", tag="text"):
    text: str = ""


class ThinkingBlock(msgspec.Struct, tag_field="type", tag="thinking"):
    thinking: str = ""
    signature: str = ""


class ToolUseBlock(msgspec.Struct, tag_field="type", tag="tool_use"):
    id: str
    name: str
    input: dict[str, Any] = {}


Block = TextBlock | ThinkingBlock | ToolUseBlock


class Usage(msgspec.Struct, kw_only=True):
    """Tokens. Those of the prompt are in one of the first three, by what became of them."""

    input_tokens: int
    """Computed."""
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int = 0
    """Their KV was there."""
    output_tokens: int = 0


class ReplyMessage(msgspec.Struct, kw_only=True):
    """A reply; in a stream, its beginning."""

    id: str
    type: str = "message"
    role: str = "assistant"
    model: str
    content: list[Block] = []
    stop_reason: str | None = None
    stop_sequence: str | None = None
    usage: Usage


class TextDelta(msgspec.Struct, tag_field="type", tag="text_delta"):
    text: str


class ThinkingDelta(msgspec.Struct, tag_field="type", tag="thinking_delta"):
    thinking: str


class SignatureDelta(msgspec.Struct, tag_field="type", tag="signature_delta"):
    signature: str


class InputJsonDelta(msgspec.Struct, tag_field="type", tag="input_json_delta"):
    partial_json: str


class MessageStart(msgspec.Struct, tag_field="type", tag="message_start"):
    message: ReplyMessage


class ContentBlockStart(msgspec.Struct, tag_field="type", tag="content_block_start"):
    index: int
    content_block: Block


class ContentBlockDelta(msgspec.Struct, tag_field="type", tag="content_block_delta"):
    index: int
    delta: TextDelta | ThinkingDelta | SignatureDelta | InputJsonDelta


class ContentBlockStop(msgspec.Struct, tag_field="type", tag="content_block_stop"):
    index: int


class Stop(msgspec.Struct):
    """Why a reply ended."""

    stop_reason: str
    stop_sequence: str | None


class MessageDelta(msgspec.Struct, tag_field="type", tag="message_delta"):
    delta: Stop
    usage: Usage


class MessageStop(msgspec.Struct, tag_field="type", tag="message_stop"):
    pass


StreamEvent = (
    MessageStart | ContentBlockStart | ContentBlockDelta | ContentBlockStop | MessageDelta | MessageStop
)


class CountedTokens(msgspec.Struct):
    """Reply of count_tokens."""

    input_tokens: int


def new_id(prefix: str) -> str:
    """Of a message, or a request."""
    return f"{prefix}_{secrets.token_hex(12)}"


def usage_of(finish: Finish) -> Usage:
    """At the end of a reply."""
    counts = finish.counts
    assert counts is not None, "there are messages, so the model is not just loaded"
    return Usage(
        input_tokens=counts.prompt_eval_count - finish.cached_tokens,
        cache_read_input_tokens=finish.cached_tokens,
        output_tokens=counts.eval_count,
    )


def stop_of(finish: Finish, *, has_calls: bool) -> Stop:
    """Why it ended, in Anthropic's words."""
    if finish.reason == "length":
        return Stop("max_tokens", None)
    if has_calls:
        return Stop("tool_use", None)
    if finish.stop_string:
        return Stop("stop_sequence", finish.stop_string)
    return Stop("end_turn", None)
