"""Replies of gpt-oss."""

from __future__ import annotations

import json

from puna.chat.replies.pieces import Call
from tests.chat.replies.families.examples.example import ODD, PING, WEATHER, Example

_NEXT = "<|end|><|start|>assistant"
_FENCE = Call("get_weather", {"city": "<|end|><|channel|>", "unit": None})


def _message(head: str, call: Call) -> str:
    return f"{head}<|message|>{json.dumps(call.arguments, ensure_ascii=False)}"


HARMONY = [
    Example(
        text=f"<|channel|>analysis<|message|>Hm, 1 < 2.{_NEXT}<|channel|>final<|message|>Yes <|x|>",
        thinking="Hm, 1 < 2.",
        content="Yes <|x|>",
    ),
    Example(
        text=f"<|channel|>analysis<|message|>Hm.{_NEXT}"
        + _message("<|channel|>commentary to=functions.get_weather <|constrain|>json", WEATHER),
        thinking="Hm.",
        calls=(WEATHER,),
    ),
    Example(text=_message(" to=functions.ping_all_hosts<|channel|>commentary json", PING), calls=(PING,)),
    Example(
        text=f"<|channel|>commentary<|message|>Let me see.{_NEXT}<|channel|>analysis<|message|>So{_NEXT}"
        + _message("<|channel|>analysis to=functions.get_weather code", ODD)
        + _NEXT
        + _message(" to=functions.get_weather<|channel|>commentary", _FENCE)
        + "<|end|>",
        content="Let me see.",
        thinking="So",
        calls=(ODD, _FENCE),
    ),
    Example(text="<|channel|>commentary to=functions.f<|message|>no", content="no"),
    Example(text='<|channel|>commentary to=functions.f<|message|>{"a', content=""),
    Example(text="<|channel|>analysis<|message|>a<|end|><|start|>assist", thinking="a"),
    Example(text=" to be <|messag", content=" to be <|messag"),
    Example(text=" t", content=" t"),
]
