"""Replies of Command R7B and its successors."""

from __future__ import annotations

import json

from puna.chat.replies.pieces import Call
from tests.chat.replies.families.examples.example import ODD, PING, WEATHER, Example


def _actions(*calls: Call) -> str:
    objects = (
        {"tool_call_id": str(number), "tool_name": call.name, "parameters": call.arguments}
        for number, call in enumerate(calls)
    )
    listed = ",\n".join(f"    {json.dumps(each, ensure_ascii=False)}" for each in objects)
    return f"<|START_ACTION|>[\n{listed}\n]<|END_ACTION|>"


_FENCE = Call("f", {"a": "<|END_ACTION|>"})
COHERE = [
    Example(text=_actions(WEATHER), calls=(WEATHER,)),
    Example(
        text=f"<|START_THINKING|>I will ask.<|END_THINKING|>{_actions(ODD, PING, _FENCE)}",
        thinking="I will ask.",
        calls=(ODD, PING, _FENCE),
    ),
    Example(
        text="So.<|END_THINKING|><|START_TEXT|> Yes.<|END_TEXT|>",
        starts_thinking=True,
        thinking="So.",
        content=" Yes.",
    ),
    Example(text="<|START_RESPONSE|>a <|b<|END_RESPONSE|>", content="a <|b"),
    Example(text="a<|START_ACTION|>no<|END_TEXT", content="a<|START_ACTION|>no<|END_TEXT"),
    Example(text='<|START_ACTION|>[{"tool_name": "f", "par', content=""),
]
