"""Input items of responses as messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from puna.api.errors import ApiError
from puna.api.openai.calls import EarlierCalls
from puna.api.openai.content import Content, parse_content
from puna.api.openai.responses.tools import full_name, text_arguments
from puna.chat.messages import CalledFunction, Message, ToolCall

_LEFT_OUT = frozenset(
    [
        *("web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call"),
        *("mcp_list_tools", "mcp_call", "tool_search_call", "tool_search_output"),
    ]
)
"""What OpenAI's servers did themselves."""
_REASONING_IDS = "rs_"


def parse_input(given: str | list[Any], instructions: str | None) -> list[Message]:
    """ApiError (400) names the item that makes no sense."""
    system = [Message("system", instructions)] if instructions else []
    if isinstance(given, str):
        return [*system, Message("user", given)]
    conversation = _Conversation(system)
    for number, item in enumerate(given):
        try:
            conversation.add(item)
        except ApiError as error:
            raise ApiError(error.status, f"input[{number}]: {error.text}") from error
    return conversation.messages


class _Conversation:
    """Calls belong to what the assistant said before them, and thoughts to what came behind them."""

    def __init__(self, messages: list[Message]) -> None:
        self.messages = messages
        self._thoughts: str | None = None
        self._called: dict[str, str] = {}  # by the ids of calls
        self._earlier = EarlierCalls()

    def add(self, item: Any) -> None:
        """ApiError (400)."""
        if not isinstance(item, dict):
            raise ApiError(400, "not an object")
        match item.get("type", "message"):
            case "message":
                self._add_message(_text(item, "role"), parse_content(item.get("content")))
            case "function_call":
                arguments, call_id = _text(item, "arguments"), _text(item, "call_id")
                self._add_call(item, self._earlier.call(_name(item), arguments, call_id))
            case "custom_tool_call":
                function = CalledFunction(_name(item), text_arguments(_text(item, "input")))
                self._add_call(item, ToolCall(function, _text(item, "call_id")))
            case "function_call_output" | "custom_tool_call_output":
                self._add_result(item)
            case "reasoning":
                self._thoughts = _thoughts(item)
            case "item_reference":
                if not _text(item, "id").startswith(_REASONING_IDS):
                    raise ApiError(400, "an item_reference needs stored items, and nothing is stored here")
            case str(kind) if kind in _LEFT_OUT:
                pass
            case kind:
                raise ApiError(400, f'unknown input item type: "{str(kind)[:40]}"')

    def _add_message(self, role: str, content: Content) -> None:
        thoughts = self._take_thoughts() if role.lower() == "assistant" else None
        self.messages.append(Message(role, content.text, thinking=thoughts, images=list(content.images)))

    def _add_call(self, item: Mapping[str, Any], call: ToolCall) -> None:
        self._called[_text(item, "call_id")] = call.function.name
        last = self.messages[-1] if self.messages else None
        if last is not None and last.role.lower() == "assistant" and self._thoughts is None:
            last.tool_calls.append(call)
        else:
            self.messages.append(Message("assistant", thinking=self._take_thoughts(), tool_calls=[call]))

    def _add_result(self, item: Mapping[str, Any]) -> None:
        call_id, output = _text(item, "call_id"), item.get("output")
        if isinstance(output, str | list):
            content = parse_content(output)
        else:
            content = Content(msgspec.json.encode(output).decode())
        self.messages.append(
            Message(
                "tool",
                content.text,
                tool_name=self._called.get(call_id),
                tool_call_id=call_id,
                images=list(content.images),
            )
        )

    def _take_thoughts(self) -> str | None:
        thoughts, self._thoughts = self._thoughts, None
        return thoughts


def _thoughts(item: Mapping[str, Any]) -> str | None:
    """What `puna` calls encrypted is the thoughts as they were."""
    if isinstance(text := item.get("encrypted_content"), str) and text:
        return text
    parts = item.get("content") or item.get("summary") or []
    texts = [part.get("text") for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []
    return "\n".join(text for text in texts if isinstance(text, str)) or None


def _name(item: Mapping[str, Any]) -> str:
    namespace = item.get("namespace")
    return full_name(namespace if isinstance(namespace, str) else "", _text(item, "name"))


def _text(item: Mapping[str, Any], field: str) -> str:
    if not isinstance(value := item.get(field), str):
        raise ApiError(400, f"{field} must be a string")
    return value
