"""Replies of DeepSeek's models, and of Kimi."""

from __future__ import annotations

import json

from puna.chat.replies.pieces import Call
from tests.chat.replies.families.examples.example import ODD, PING, WEATHER, Example


def _bare(*calls: Call) -> str:
    return _section(*(f"{call.name}<｜tool▁sep｜>{json.dumps(call.arguments)}" for call in calls))


def _fenced(*calls: Call) -> str:
    return _section(
        *(f"function<｜tool▁sep｜>{call.name}\n```json\n{json.dumps(call.arguments)}\n```" for call in calls)
    )


def _section(*calls: str) -> str:
    joined = "\n".join(f"<｜tool▁call▁begin｜>{call}<｜tool▁call▁end｜>" for call in calls)
    return f"<｜tool▁calls▁begin｜>{joined}<｜tool▁calls▁end｜>"


_SWALLOWED = Call("f", {"a": "```<｜tool▁call▁end｜>"})
DEEPSEEK = [
    Example(text=_bare(WEATHER), calls=(WEATHER,)),
    Example(text=f"Both: {_bare(ODD, PING, _SWALLOWED)}", content="Both:", calls=(ODD, PING, _SWALLOWED)),
    Example(text=f"Hm</think>{_bare(PING)}", starts_thinking=True, thinking="Hm", calls=(PING,)),
    Example(text="a<｜tool▁calls▁begin｜>b", content="a<｜tool▁calls▁begin｜>b"),
    Example(text="a<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool", content="a"),
]
DEEPSEEK_FENCED = [
    Example(text=_fenced(WEATHER), calls=(WEATHER,)),
    Example(
        text=f"<think>\nHm\n</think>\n\nOk.\n{_fenced(ODD, _SWALLOWED)}\n",
        thinking="Hm\n",
        content="Ok.",
        calls=(ODD, _SWALLOWED),
    ),
]


def _kimi(*calls: Call) -> str:
    written = "".join(
        f"<|tool_call_begin|>functions.{call.name}:{number}<|tool_call_argument_begin|>"
        f"{json.dumps(call.arguments)}<|tool_call_end|>"
        for number, call in enumerate(calls)
    )
    return f"<|tool_calls_section_begin|>{written}<|tool_calls_section_end|>"


KIMI = [
    Example(text=f"Both: {_kimi(WEATHER, ODD)}", content="Both:", calls=(WEATHER, ODD)),
    Example(text=f"<think>Hm</think>{_kimi(PING)}", thinking="Hm", calls=(PING,)),
    Example(text="<|tool_calls_section_begin|>a", content="<|tool_calls_section_begin|>a"),
]
