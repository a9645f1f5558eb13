"""Responses as Ollama's chats."""

from __future__ import annotations

from typing import Any

from puna.api.openai.formats import answer_of
from puna.api.openai.reasoning import think_of
from puna.api.openai.responses.conversation import parse_input
from puna.api.openai.responses.schema import ResponsesRequest
from puna.api.openai.responses.tools import OfferedTools, full_name
from puna.api.requests import ChatRequest, extensions_of
from puna.api.tool_choices import parse_tool_choice


def to_chat(request: ResponsesRequest, offered: OfferedTools) -> ChatRequest:
    """ApiError (400) for what can't be translated."""
    request.check()
    return ChatRequest(
        model=request.model,
        stream=request.stream,
        messages=parse_input(request.input, request.instructions),
        tools=offered.tools,
        tool_choice=parse_tool_choice(
            _with_full_names(request.tool_choice), parallel=request.parallel_tool_calls
        ),
        format=answer_of(request.text.format),
        options=request.options(),
        think=think_of(request.reasoning.effort),
        truncate=request.truncation != "disabled",
        logprobs=request.wants_logprobs,
        top_logprobs=request.top_logprobs,
        **extensions_of(request),
    )


def _with_full_names(choice: Any) -> Any:
    match choice:
        case {"type": "allowed_tools", "tools": list(tools)}:
            return {**choice, "tools": [_with_full_names(tool) for tool in tools]}
        case {"namespace": str(namespace), "name": str(name)}:
            return {**choice, "name": full_name(namespace, name)}
    return choice
