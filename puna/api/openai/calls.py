"""Arguments of tool calls: text in OpenAI's API, an object everywhere else."""

from __future__ import annotations

from typing import Any

import msgspec

from puna.api.errors import ApiError
from puna.api.integers import within_64_bits
from puna.chat.messages import CalledFunction, ToolCall


def arguments_text(call: ToolCall) -> str:
    """JSON without white space."""
    return msgspec.json.encode(call.function.arguments).decode()


def earlier_call(name: str, arguments: str, call_id: str | None) -> ToolCall:
    """A call in an earlier reply. ApiError (400) for arguments that are no JSON object; none may be ""."""
    try:
        parsed = msgspec.json.decode(arguments.strip() or "{}", type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        raise ApiError(400, "invalid tool call arguments") from error
    return ToolCall(CalledFunction(name, within_64_bits(parsed)), call_id)
