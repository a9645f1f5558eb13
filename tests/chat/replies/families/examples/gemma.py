"""Replies of Gemma."""

from __future__ import annotations

from typing import Any

from puna.chat.replies.pieces import Call
from tests.chat.replies.families.examples.example import ODD, PING, WEATHER, Example


def _value(value: Any, quote: str) -> str:
    match value:
        case str():
            return f"{quote}{value}{quote}"
        case dict():
            members = (f"{key}:{_value(item, quote)}" for key, item in value.items())
            return f"{{{','.join(members)}}}"
        case list():
            return f"[{','.join(_value(item, quote) for item in value)}]"
    return {None: "null", True: "true"}.get(value, str(value))


def _gemma4(call: Call) -> str:
    return f"<|tool_call>call:{call.name}{_value(call.arguments, '<|' + chr(34) + '|>')}<tool_call|>"


def _function_gemma(call: Call) -> str:
    return f"<start_function_call>call:{call.name}{_value(call.arguments, '<escape>')}<end_function_call>"


_FENCE = Call("get_weather", {"city": "<tool_call|>,}", "unit": None, "hours": [1, 2.5], "odd key": True})
_FENCE_TEXT = '{city:<|"|><tool_call|>,}<|"|>, unit:null,hours:[1, 2.5,],<|"|>odd key<|"|>: true}'
GEMMA4 = [
    Example(text=_gemma4(WEATHER), calls=(WEATHER,)),
    Example(text=f"Both: {_gemma4(ODD)}{_gemma4(PING)}", content="Both:", calls=(ODD, PING)),
    Example(
        text=f"<|channel>thought\nHm <chan\n<channel|>{_gemma4(PING)}<|channel>thought\nSo<channel|>Ok",
        thinking="Hm <chan\nSo",
        content="Ok",
        calls=(PING,),
    ),
    Example(text=f"<|tool_call>call:get_weather{_FENCE_TEXT}<tool_call|>", calls=(_FENCE,)),
    Example(text="a <|tool_call>b", content="a <|tool_call>b"),
    Example(text='<|tool_call>call:f{a:<|"|>b', content=""),
]
FUNCTION_GEMMA = [
    Example(text=_function_gemma(WEATHER), calls=(WEATHER,)),
    Example(text=f"{_function_gemma(ODD)}\n{_function_gemma(PING)} <s", content="<s", calls=(ODD, PING)),
    Example(
        text="<start_function_call>call:f{a:b c}<end_function_call>.",
        content="<start_function_call>call:f{a:b c}<end_function_call>.",
    ),
]
