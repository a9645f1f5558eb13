"""Chat completions as Ollama's chats: one way through the server for both."""

from __future__ import annotations

from puna.api.errors import ApiError
from puna.api.openai.chat.messages import parse_messages
from puna.api.openai.chat.schema import ChatCompletionRequest
from puna.api.openai.formats import answer_of
from puna.api.openai.reasoning import think_of
from puna.api.openai.sampling import reply_limit
from puna.api.requests import ChatRequest, extensions_of
from puna.api.tool_choices import parse_tool_choice
from puna.chat.tools import Tool, ToolChoice, ToolFunction


def to_chat(request: ChatCompletionRequest) -> ChatRequest:
    """ApiError (400) for what can't be translated."""
    if not request.messages:
        raise ApiError(400, "[] is too short - 'messages'")
    options = request.options()
    if (limit := reply_limit("max_completion_tokens", request.max_completion_tokens)) is not None:
        options["num_predict"] = limit
    return ChatRequest(
        model=request.model,
        stream=request.stream,
        messages=list(parse_messages(request.messages)),
        tools=_tools(request),
        tool_choice=_tool_choice(request),
        format=answer_of(request.response_format),
        options=options,
        think=think_of(request.reasoning.effort or request.reasoning_effort),
        logprobs=request.logprobs,
        top_logprobs=request.top_logprobs,
        **extensions_of(request),
    )


def _tools(request: ChatCompletionRequest) -> list[Tool]:
    if request.uses_functions:
        return [_tool("functions", number, function) for number, function in enumerate(request.functions)]
    for number, tool in enumerate(request.tools):
        if tool.type != "function":
            raise ApiError(
                400, f"tools[{number}] is of type {tool.type[:40]!r}; only functions can be called"
            )
    return [_tool("tools", number, tool.function) for number, tool in enumerate(request.tools)]


def _tool(field: str, number: int, function: ToolFunction) -> Tool:
    if not function.name:
        raise ApiError(400, f"{field}[{number}] has no name")
    return Tool(function)


def _tool_choice(request: ChatCompletionRequest) -> ToolChoice:
    if not request.uses_functions:
        return parse_tool_choice(request.tool_choice, parallel=request.parallel_tool_calls)
    choice = request.function_call
    if isinstance(choice, dict):
        choice = {**choice, "type": "function"}
    return parse_tool_choice(choice, parallel=False)
