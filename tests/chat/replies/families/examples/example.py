"""A reply as a family of models writes it, and what it says."""

from __future__ import annotations

from dataclasses import dataclass

from puna.chat.replies.pieces import Call


@dataclass(frozen=True, kw_only=True)
class Example:
    """text: with the tags as the model writes them. starts_thinking: the prompt has opened the thoughts."""

    text: str
    thinking: str = ""
    content: str = ""
    calls: tuple[Call, ...] = ()
    starts_thinking: bool = False


WEATHER = Call("get_weather", {"city": "Bergen", "unit": "C°"})
PING = Call("ping.all-hosts", {})
ODD = Call(
    "get_weather",
    {
        "city": 'a "b" \\ c\n</tool_call> [TOOL_CALLS] <think> }]) é 😀',
        "unit": 7,
        "place": {"name": "{[", "within": {"name": "'", "at": []}},
    },
)
