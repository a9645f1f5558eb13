"""Ids and numbers of the calls of one reply."""

from __future__ import annotations

import secrets
import string

from puna.chat.messages import CalledFunction, ToolCall
from puna.chat.replies.pieces import Call

_ALPHABET = string.ascii_lowercase + string.digits


class CallNumbers:
    """Counts the calls of a reply."""

    def __init__(self) -> None:
        self._num_calls = 0

    def numbered(self, call: Call) -> ToolCall:
        """With a number from 0 on, and an id that no other call has."""
        function = CalledFunction(call.name, call.arguments, self._num_calls)
        self._num_calls += 1
        return ToolCall(function, "call_" + "".join(secrets.choice(_ALPHABET) for _ in range(8)))
