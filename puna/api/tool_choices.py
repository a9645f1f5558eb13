"""`tool_choice`: whether tools are called, and which."""

from __future__ import annotations

from typing import Any

from puna.api.errors import ApiError
from puna.chat.tools import ToolChoice

_MOST_NAMES = 1024
_UNKNOWN = 'invalid tool_choice: it must be "none", "auto", "required", or name functions'


def parse_tool_choice(choice: Any, *, parallel: bool) -> ToolChoice:
    """Of chat completions, where names are in an object of their own, and of responses, where they are not.
    A tool that is named is called once. choice: may have been parsed before. ApiError (400).
    """
    match choice:
        case ToolChoice():
            return choice
        case None | "auto":
            return ToolChoice(parallel=parallel)
        case "none":
            return ToolChoice("none")
        case "required" | "any":
            return ToolChoice("required", parallel=parallel)
        case {"type": "allowed_tools"}:
            return _allowed(choice.get("allowed_tools", choice), parallel=parallel)
        case {"type": "function" | "custom"}:
            return ToolChoice("required", [_name(choice)], parallel=False)
    raise ApiError(400, _UNKNOWN)


def _allowed(allowed: Any, *, parallel: bool) -> ToolChoice:
    match allowed:
        case {"mode": "auto" | "required" as mode, "tools": [_, *_] as tools} if len(tools) <= _MOST_NAMES:
            return ToolChoice(mode, [_name(tool) for tool in tools], parallel=parallel)
    raise ApiError(400, "invalid tool_choice: allowed_tools has a mode (auto or required) and tools")


def _name(named: Any) -> str:
    match named:
        case {"function": {"name": str(name)}} | {"custom": {"name": str(name)}} | {"name": str(name)}:
            return name
    raise ApiError(400, "invalid tool_choice: a tool without a name")
