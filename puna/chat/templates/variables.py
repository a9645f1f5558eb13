"""What chat templates see of a conversation."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from itertools import chain, takewhile
from typing import Any

import msgspec

from puna.chat.messages import Message, ToolCall
from puna.chat.replies.pieces import Call
from puna.chat.templates.call_style import CallStyle

_ID_LENGTH = 9  # Mistral takes no other


def conversation_variables(messages: Sequence[Message], style: CallStyle) -> list[dict[str, Any]]:
    """Calls have ids, and results the ids and names of their calls, in whose order they are.

    What the model thought is shown to it again only since the user spoke last: between its calls.
    """
    matched = with_matched_results(messages)
    last_user = max((i for i, message in enumerate(matched) if message.role == "user"), default=-1)
    return [_variables(message, style, thinks=i > last_user) for i, message in enumerate(matched)]


def with_written_calls(message: Message, written: Callable[[Sequence[Call]], str]) -> Message:
    """The same message, its calls a part of what it says."""
    calls = [Call(call.function.name, call.function.arguments) for call in message.tool_calls]
    return msgspec.structs.replace(message, content=message.content + written(calls), tool_calls=[])


def _variables(message: Message, style: CallStyle, *, thinks: bool) -> dict[str, Any]:
    variables: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        variables["tool_calls"] = [_call_variables(call, style) for call in message.tool_calls]
        if style.no_content and not message.content:
            variables["content"] = None
    if message.thinking and thinks and not (style.thinks_or_speaks and message.content):
        variables |= {"reasoning_content": message.thinking, "thinking": message.thinking}
    if message.tool_name is not None:
        variables["name"] = message.tool_name
    if message.tool_call_id is not None:
        variables["tool_call_id"] = message.tool_call_id
    return variables


def _call_variables(call: ToolCall, style: CallStyle) -> dict[str, Any]:
    arguments: Any = call.function.arguments
    if style.arguments_as_text:
        arguments = msgspec.json.encode(arguments).decode()
    return {
        "type": "function",
        "id": call.id,
        "function": {"name": call.function.name, "arguments": arguments},
    }


def with_matched_results(messages: Sequence[Message]) -> list[Message]:
    """Calls have ids, and results the ids and names of their calls, in whose order they are."""
    matched: list[Message] = []
    position = 0
    while position < len(messages):
        message = messages[position]
        position += 1
        if not message.tool_calls:
            matched.append(message)
            continue
        calls = [_with_id(call, number) for number, call in enumerate(message.tool_calls)]
        results = list(takewhile(lambda m: m.role == "tool", messages[position:]))
        position += len(results)
        matched += [msgspec.structs.replace(message, tool_calls=calls), *_in_order(results, calls)]
    return matched


def _with_id(call: ToolCall, number: int) -> ToolCall:
    """number: among those of its message. The id depends on nothing else, so that a conversation that goes on
    begins as before.
    """
    if call.id:
        return call
    content = msgspec.json.encode([call.function.name, call.function.arguments, number])
    return msgspec.structs.replace(call, id=hashlib.sha256(content).hexdigest()[:_ID_LENGTH])


def _in_order(results: Sequence[Message], calls: Sequence[ToolCall]) -> list[Message]:
    """Results that belong to no call stay as they are, behind the others."""
    waiting = dict(enumerate(calls))
    placed: dict[int, Message] = {}
    others: list[Message] = []
    for result in results:
        if not waiting:
            others.append(result)
            continue
        number = _number_of_call(result, waiting)
        call = waiting.pop(number)
        name = result.tool_name or call.function.name
        placed[number] = msgspec.structs.replace(result, tool_call_id=call.id, tool_name=name)
    return [*(placed[number] for number in sorted(placed)), *others]


def _number_of_call(result: Message, waiting: Mapping[int, ToolCall]) -> int:
    """Of the call with its id; else of the first one of its function; else of the first one."""
    by_id = (number for number, call in waiting.items() if call.id == result.tool_call_id)
    by_name = (number for number, call in waiting.items() if call.function.name == result.tool_name)
    return next(chain(by_id, by_name, waiting))
