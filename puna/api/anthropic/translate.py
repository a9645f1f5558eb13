"""Anthropic's requests as Ollama's."""

from __future__ import annotations

from typing import Any, Literal

from puna.api.anthropic.blocks import Conversation, text_blocks
from puna.api.anthropic.schema import InputToolChoice, MessagesRequest, PromptFields
from puna.api.errors import ApiError
from puna.api.requests import ChatRequest, Extensions
from puna.chat.conversation.changing_lines import without_changing_lines
from puna.chat.messages import Message
from puna.chat.tools import Tool, ToolChoice, ToolFunction

_THINKS = {"enabled": True, "adaptive": True, "disabled": False}
_EFFORTS = {"low": "low", "medium": "medium", "high": "high", "xhigh": "high", "max": "max"}
_MODES: dict[str, Literal["auto", "none", "required"]] = {
    "auto": "auto",
    "any": "required",
    "tool": "required",
    "none": "none",
}


def to_chat(request: MessagesRequest) -> ChatRequest:
    """ApiError (400) for what can't be translated."""
    if request.max_tokens <= 0:
        raise ApiError(400, "max_tokens is required and must be positive")
    chat = to_prompt(request)
    chat.stream = request.stream
    options = {
        "num_predict": request.max_tokens,
        "temperature": request.temperature,
        "top_p": request.top_p,
        "top_k": request.top_k,
        "stop": request.stop_sequences or None,
    }
    chat.options = {name: value for name, value in options.items() if value is not None}
    return chat


def to_prompt(request: PromptFields) -> ChatRequest:
    """As far as the prompt goes. ApiError (400)."""
    if not request.model:
        raise ApiError(400, "model is required")
    if not request.messages:
        raise ApiError(400, "messages is required")
    return ChatRequest(
        model=request.model,
        messages=_messages(request),
        tools=_tools(request),
        tool_choice=_tool_choice(request.tool_choice),
        think=_think(request),
        format=_format(request),
        **{name: getattr(request, name) for name in Extensions.__struct_fields__},
    )


def _messages(request: PromptFields) -> list[Message]:
    conversation = Conversation()
    system = "".join(map(without_changing_lines, text_blocks(request.system, "system")))
    messages = [Message("system", system)] if system else []
    for turn in request.messages:
        messages += conversation.messages(turn)
    return messages


def _tools(request: PromptFields) -> list[Tool]:
    """Without those that are known to Anthropic's servers only."""
    tools = [tool for tool in request.tools if tool.type == "custom"]
    for number, tool in enumerate(tools):
        if not tool.name:
            raise ApiError(400, f"tools.{number}: name is required")
    return [Tool(ToolFunction(tool.name, tool.description, tool.input_schema, tool.strict)) for tool in tools]


def _tool_choice(choice: InputToolChoice) -> ToolChoice:
    if choice.type not in _MODES:
        raise ApiError(400, f"tool_choice.type must be one of {', '.join(_MODES)}")
    if choice.type == "tool" and not choice.name:
        raise ApiError(400, "tool_choice.name is required")
    return ToolChoice(
        _MODES[choice.type],
        [choice.name] if choice.type == "tool" else [],
        not choice.disable_parallel_tool_use,
    )


def _think(request: PromptFields) -> bool | str | None:
    """None: as the model does by default."""
    level = _EFFORTS.get(request.output_config.effort)
    thinks = _THINKS.get(request.thinking.type)
    return thinks if thinks is False else level or thinks


def _format(request: PromptFields) -> Any:
    wanted = request.output_config.format or request.output_format
    if wanted is None:
        return None
    if wanted.type != "json_schema":
        raise ApiError(400, "the only output format is json_schema")
    return wanted.schema
