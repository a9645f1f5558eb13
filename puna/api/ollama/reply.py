"""Replies of generate and chat in Ollama's shape."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from puna.api.errors import ApiError
from puna.api.ollama.errors import ollama_error_body
from puna.api.replying.events import Delta, Event, Finish, Rendered, collect, is_whole
from puna.chat.messages import ToolCall
from puna.engine.request import TokenLogprob


class DebugInfo(msgspec.Struct, omit_defaults=True):
    """The rendered prompt."""

    rendered_template: str
    image_count: int = 0


class AlternativeReply(msgspec.Struct):
    """A token that could have been drawn."""

    token: str
    logprob: float
    bytes: list[int]


class LogprobReply(msgspec.Struct, omit_defaults=True):
    """A token that was drawn."""

    token: str
    logprob: float
    bytes: list[int]
    top_logprobs: list[AlternativeReply] = []


class ReplyMessage(msgspec.Struct, omit_defaults=True):
    """The assistant's message, or a piece of it."""

    role: str
    content: str
    thinking: str = ""
    tool_calls: list[ToolCall] = []


class GenerateReply(msgspec.Struct, kw_only=True, omit_defaults=True):
    """An object of /api/generate; fields with a default only where they mean something."""

    model: str
    created_at: datetime
    response: str
    thinking: str = ""
    done: bool
    done_reason: str = ""
    context: list[int] = []
    total_duration: int = 0
    load_duration: int = 0
    prompt_eval_count: int = 0
    prompt_eval_cached_count: int = 0
    prompt_eval_duration: int = 0
    eval_count: int = 0
    eval_duration: int = 0
    logprobs: list[LogprobReply] = []
    debug_info: DebugInfo | None = msgspec.field(default=None, name="_debug_info")


class ChatReply(msgspec.Struct, kw_only=True, omit_defaults=True):
    """An object of /api/chat."""

    model: str
    created_at: datetime
    message: ReplyMessage
    done: bool
    done_reason: str = ""
    total_duration: int = 0
    load_duration: int = 0
    prompt_eval_count: int = 0
    prompt_eval_cached_count: int = 0
    prompt_eval_duration: int = 0
    eval_count: int = 0
    eval_duration: int = 0
    logprobs: list[LogprobReply] = []
    debug_info: DebugInfo | None = msgspec.field(default=None, name="_debug_info")


def logprob_replies(logprobs: Sequence[TokenLogprob]) -> list[LogprobReply]:
    """Log-probabilities as both faces show them."""
    return [
        LogprobReply(
            token_text(item),
            item.logprob,
            list(item.bytes),
            [AlternativeReply(token_text(other), other.logprob, list(other.bytes)) for other in item.top],
        )
        for item in logprobs
    ]


def token_text(item: TokenLogprob) -> str:
    """A token may be a part of a character."""
    return item.bytes.decode(errors="replace")


class ReplyFraming:
    """NDJSON of one request."""

    media_type = "application/x-ndjson"

    def __init__(self, model: str, *, chat: bool) -> None:
        """model: as requested."""
        self._model = model
        self._chat = chat

    def is_whole(self, first: Event) -> bool:
        return is_whole(first)

    def frame(self, event: Event) -> bytes:
        return self._encode(event) + b"\n"

    def end(self) -> bytes:
        return b""

    def error_frame(self, error: ApiError) -> bytes:
        return ollama_error_body(error) + b"\n"

    def body(self, events: list[Event]) -> bytes:
        if isinstance(events[-1], Rendered):
            return self._encode(events[-1])
        (whole,) = collect(events)
        return self._encode(
            whole.finish, Delta(whole.content, whole.thinking, whole.logprobs, tool_calls=whole.tool_calls)
        )

    def error_body(self, error: ApiError) -> bytes:
        return ollama_error_body(error)

    def _encode(self, event: Event, text: Delta | None = None) -> bytes:
        """One object; text: what the reply holds besides a final event."""
        delta = event if isinstance(event, Delta) else text or Delta()
        fields: dict[str, Any] = {
            "model": self._model,
            "created_at": datetime.now(UTC),
            "done": isinstance(event, Finish),
            "logprobs": logprob_replies(delta.logprobs),
        }
        if isinstance(event, Finish):
            fields["done_reason"] = event.reason
            fields["prompt_eval_cached_count"] = event.cached_tokens
            fields |= msgspec.structs.asdict(event.counts) if event.counts else {}
        elif isinstance(event, Rendered):
            fields["debug_info"] = DebugInfo(event.prompt, event.num_images)
        if self._chat:
            message = ReplyMessage("assistant", delta.content, delta.thinking, delta.tool_calls)
            return msgspec.json.encode(ChatReply(message=message, **fields))
        context = event.context if isinstance(event, Finish) else []
        reply = GenerateReply(response=delta.content, thinking=delta.thinking, context=context, **fields)
        return msgspec.json.encode(reply)
