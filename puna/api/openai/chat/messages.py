"""Messages of chat completions as everybody's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from puna.api.openai.calls import EarlierCalls
from puna.api.openai.chat.schema import RequestMessage
from puna.api.openai.content import Content, parse_content
from puna.chat.messages import Message, ToolCall


def parse_messages(messages: Iterable[RequestMessage]) -> Iterator[Message]:
    """Results of tools get the names of what was called. ApiError (400)."""
    called: dict[str | None, str] = {}  # by the ids of calls
    earlier = EarlierCalls()
    for message in messages:
        calls = _calls(message, earlier)
        called |= {call.id: call.function.name for call in calls if call.id}
        content = _content(message, calls)
        yield Message(
            role="tool" if message.role == "function" else message.role,
            content=content.text,
            thinking=message.reasoning or message.reasoning_content or None,
            tool_calls=calls,
            tool_name=message.name or called.get(message.tool_call_id),
            tool_call_id=message.tool_call_id or None,
            images=list(content.images),
        )


def _calls(message: RequestMessage, earlier: EarlierCalls) -> list[ToolCall]:
    function = message.function_call
    legacy = [earlier.call(function.name, function.arguments, None)] if function.name else []
    calls = [
        earlier.call(call.function.name, call.function.arguments, call.id or None)
        for call in message.tool_calls
    ]
    return legacy + calls


def _content(message: RequestMessage, calls: list[ToolCall]) -> Content:
    if message.content is None and (calls or message.refusal):
        return Content(message.refusal)
    return parse_content(message.content)
