"""How chats are asked for in each protocol."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Chat:
    """messages and functions: as OpenAI's chat completions have them. schema: of the answer."""

    messages: Sequence[Json]
    num_tokens: int
    functions: Sequence[Json] = ()
    schema: Mapping[str, Any] | None = None


def asking(text: str, num_tokens: int) -> Chat:
    """A user who says this."""
    return Chat(messages=[{"role": "user", "content": text}], num_tokens=num_tokens)


@dataclass(frozen=True)
class Protocol:
    """event: what stands before each token's event."""

    name: str
    path: str
    event: bytes
    fields: Callable[[Chat], Json] = field(repr=False)

    def request(self, model: str, chat: Chat) -> bytes:
        """All of it, head and body; the reply is to be streamed, its tokens the likeliest."""
        body = json.dumps({"model": model, "stream": True, **self.fields(chat)}).encode()
        head = f"POST {self.path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def _wrapped(chat: Chat) -> Json:
    tools = [{"type": "function", "function": function} for function in chat.functions]
    return {"tools": tools} if tools else {}


def _ollama(chat: Chat) -> Json:
    options = {"temperature": 0, "num_predict": chat.num_tokens}
    format_ = {} if chat.schema is None else {"format": chat.schema}
    return {"messages": chat.messages, "options": options, **_wrapped(chat), **format_}


def _completions(chat: Chat) -> Json:
    fields: Json = {"messages": chat.messages, "temperature": 0, "max_tokens": chat.num_tokens}
    if chat.schema is not None:
        json_schema = {"name": "answer", "schema": chat.schema}
        fields["response_format"] = {"type": "json_schema", "json_schema": json_schema}
    return fields | _wrapped(chat)


def _responses(chat: Chat) -> Json:
    fields: Json = {"input": chat.messages, "temperature": 0, "max_output_tokens": chat.num_tokens}
    if chat.functions:
        fields["tools"] = [{"type": "function", **function} for function in chat.functions]
    if chat.schema is not None:
        fields["text"] = {"format": {"type": "json_schema", "name": "answer", "schema": chat.schema}}
    return fields


def _messages(chat: Chat) -> Json:
    fields: Json = {"messages": chat.messages, "temperature": 0, "max_tokens": chat.num_tokens}
    if chat.functions:
        fields["tools"] = [
            {"name": f["name"], "description": f["description"], "input_schema": f["parameters"]}
            for f in chat.functions
        ]
    if chat.schema is not None:
        fields["output_config"] = {"format": {"type": "json_schema", "schema": chat.schema}}
    return fields


NDJSON = Protocol("NDJSON", "/api/chat", b'{"model"', _ollama)
SSE = Protocol("SSE", "/v1/chat/completions", b"data: {", _completions)
RESPONSES = Protocol("responses", "/v1/responses", b"event: response.output_text.delta", _responses)
MESSAGES = Protocol("messages", "/v1/messages", b"event: content_block_delta", _messages)
