"""Arguments of tool calls: text in OpenAI's API, an object everywhere else."""

from __future__ import annotations

from typing import Any

import msgspec

from puna._native import json_structure
from puna.api.bodies.body import MAX_DEPTH, MAX_VALUES
from puna.api.bodies.integers import within_64_bits
from puna.api.errors import ApiError
from puna.chat.messages import CalledFunction, ToolCall


def arguments_text(call: ToolCall) -> str:
    """JSON without white space."""
    return msgspec.json.encode(call.function.arguments).decode()


class EarlierCalls:
    """Calls in earlier replies, of one request: what their arguments hold is bounded as its body is."""

    def __init__(self) -> None:
        self._num_values = 0

    def call(self, name: str, arguments: str, call_id: str | None) -> ToolCall:
        """ApiError (400) for arguments that are no JSON object; none may be ""."""
        try:
            text = (arguments.strip() or "{}").encode()
            num_values, depth, _ = json_structure(text)
            self._num_values += num_values
            if depth > MAX_DEPTH or self._num_values > MAX_VALUES:
                raise ApiError(
                    400, f"tool call arguments are nested too deep, or have over {MAX_VALUES} values"
                )
            parsed = msgspec.json.decode(text, type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeEncodeError) as error:
            raise ApiError(400, "invalid tool call arguments") from error
        return ToolCall(CalledFunction(name, within_64_bits(parsed)), call_id)
