"""OpenAI's requests as Ollama's: one way through the server for both."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from puna.api.errors import ApiError
from puna.api.openai.schema import (
    ChatCompletionRequest,
    CompletionRequest,
    MessageToolCall,
    RequestMessage,
    ResponseFormat,
)
from puna.api.requests import ChatRequest, Extensions, GenerateRequest
from puna.chat.messages import CalledFunction, Message, ToolCall

_EFFORTS: dict[str, bool | str] = {
    "none": False,
    "minimal": "low",
    "low": "low",
    "medium": "medium",
    "high": "high",
    "max": "max",
    "xhigh": "max",
    "ultra": "max",
}
_IMAGE_PREFIXES = (
    *(f"data:image/{kind};base64," for kind in ("jpeg", "jpg", "png", "webp")),
    "data:;base64,",
)


def to_chat(request: ChatCompletionRequest) -> ChatRequest:
    """ApiError (400) for what can't be translated."""
    if not request.messages:
        raise ApiError(400, "[] is too short - 'messages'")
    return ChatRequest(
        model=request.model,
        stream=request.stream,
        messages=list(_messages(request.messages)),
        tools=request.tools,
        format=_format(request.response_format),
        options=request.options(),
        think=_think(request.reasoning.effort or request.reasoning_effort),
        logprobs=request.logprobs,
        top_logprobs=request.top_logprobs,
        **_extensions(request),
    )


def to_generate(request: CompletionRequest, *, with_logprobs: bool) -> GenerateRequest:
    """All but the prompts. ApiError (400) for what can't be translated."""
    return GenerateRequest(
        model=request.model,
        stream=request.stream,
        suffix=request.suffix,
        options=request.options(),
        logprobs=with_logprobs,
        top_logprobs=request.logprobs or 0,
        **_extensions(request),
    )


def _extensions(request: Extensions) -> Mapping[str, Any]:
    return {name: getattr(request, name) for name in Extensions.__struct_fields__}


def _think(effort: str | None) -> bool | str | None:
    if not effort:
        return None
    if effort not in _EFFORTS:
        choices = ", ".join(f'"{name}"' for name in _EFFORTS)
        raise ApiError(400, f'invalid reasoning value: "{effort}" (must be {choices})')
    return _EFFORTS[effort]


def _format(response_format: ResponseFormat) -> Any:
    if response_format.type == "json_object":
        return "json"
    return response_format.json_schema.get("schema") if response_format.type == "json_schema" else None


def _messages(messages: Iterable[RequestMessage]) -> Iterable[Message]:
    """Every part of a message becomes a message of its own, as Ollama has it."""
    called: dict[str | None, str] = {}  # id of a tool call: name of the tool
    for message in messages:
        calls = [_tool_call(call) for call in message.tool_calls]
        called |= {call.id: call.function.name for call in calls}
        whole = Message(
            role=message.role,
            thinking=message.reasoning or None,
            tool_calls=calls,
            tool_name=message.name or called.get(message.tool_call_id),
            tool_call_id=message.tool_call_id or None,
        )
        yield from _with_content(whole, message.content)


def _with_content(message: Message, content: Any) -> Iterable[Message]:
    if isinstance(content, str):
        yield msgspec.structs.replace(message, content=content)
    elif isinstance(content, list):
        for part in content:
            yield msgspec.structs.replace(message, **_part(part))
    elif content is None and message.tool_calls:
        yield message
    else:
        kind = "<nil>" if content is None else type(content).__name__
        raise ApiError(400, f"invalid message content type: {kind}")


def _part(part: Any) -> dict[str, Any]:
    """What one part of a message's content adds to it."""
    kind = part.get("type") if isinstance(part, dict) else None
    if kind == "text" and isinstance(text := part.get("text"), str):
        return {"content": text}
    if kind == "image_url":
        image = part.get("image_url")
        return {"images": [_image(image.get("url") if isinstance(image, dict) else image)]}
    if kind == "input_audio" and isinstance(audio := part.get("input_audio"), dict):
        return {"images": [_base64(str(audio.get("data", "")))]}
    raise ApiError(400, "invalid message format")


def _image(url: Any) -> bytes:
    if not isinstance(url, str):
        raise ApiError(400, "invalid image input")
    if url.startswith(("http://", "https://")):
        raise ApiError(400, "image URLs are not currently supported, please use base64 encoded data instead")
    for prefix in _IMAGE_PREFIXES:
        if url.startswith(prefix):
            return _base64(url[len(prefix) :])
    raise ApiError(400, "invalid image input")


def _base64(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except ValueError as error:
        raise ApiError(400, "invalid image input") from error


def _tool_call(call: MessageToolCall) -> ToolCall:
    try:
        arguments = msgspec.json.decode(call.function.arguments, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        raise ApiError(400, "invalid tool call arguments") from error
    return ToolCall(CalledFunction(call.function.name, arguments), call.id)
