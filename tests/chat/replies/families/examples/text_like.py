"""Replies of families that write strings as they are."""

from __future__ import annotations

import json
from typing import Any

from puna.chat.replies.pieces import Call
from tests.chat.replies.families.examples.example import ODD, PING, WEATHER, Example

_LINES = Call(
    "get_weather", {"city": "a\n\n<b>\n ", "unit": None, "note": "007", "days": 3, "hours": [1.5, 2]}
)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _xml(call: Call) -> str:
    parameters = "".join(
        f"<parameter={name}>\n{_text(value)}\n</parameter>\n" for name, value in call.arguments.items()
    )
    return f"<tool_call>\n<function={call.name}>\n{parameters}</function>\n</tool_call>"


QWEN_CODER = [
    Example(text=_xml(WEATHER), calls=(WEATHER,)),
    Example(text=f"Both:\n\n{_xml(ODD)}\n{_xml(PING)}\n", content="Both:", calls=(ODD, PING)),
    Example(
        text=f"<think>\n<tool_call or not?\n</think>\n\n{_xml(_LINES)}",
        thinking="<tool_call or not?\n",
        calls=(_LINES,),
    ),
    Example(
        text="<tool_call><function=get_weather><parameter=city>a</parameter><parameter=unit>\n</parameter>"
        "<parameter=detailed>True</parameter><parameter=note> null </parameter></function></tool_call>!",
        content="!",
        calls=(Call("get_weather", {"city": "a", "unit": "", "detailed": True, "note": None}),),
    ),
    Example(text=f"Hm.</think>{_xml(PING)}", starts_thinking=True, thinking="Hm.", calls=(PING,)),
    Example(text="a <tool_call> b <function=f>", content="a <tool_call> b <function=f>"),
    Example(text="<tool_call>\n<function=f>\n<param", content=""),
]


SEED_OSS = [
    Example(
        text="<seed:think>So</seed:think><seed:tool_call>\n<function=get_weather>\n<parameter=city>a\n"
        "</parameter>\n<parameter=unit>7</parameter>\n</function>\n</seed:tool_call>",
        thinking="So",
        calls=(Call("get_weather", {"city": "a\n", "unit": 7}),),
    ),
    Example(text="a <seed:tool_call>b", content="a <seed:tool_call>b"),
]
MINIMAX = [
    Example(
        text='Ok.\n<minimax:tool_call>\n<invoke name="get_weather">\n'
        '<parameter name="city">\n<b>\n</parameter>\n</invoke>\n'
        '<invoke name="ping.all-hosts">\n</invoke>\n</minimax:tool_call>\n',
        content="Ok.",
        calls=(Call("get_weather", {"city": "\n<b>\n"}), PING),
    ),
    Example(text='<minimax:tool_call><invoke name="f">no', content='<minimax:tool_call><invoke name="f">no'),
    Example(text='<minimax:tool_call>\n<invoke name="f">\n<par', content=""),
]


def _pairs(call: Call, line: str) -> str:
    arguments = "".join(
        f"<arg_key>{name}</arg_key>{line}<arg_value>{_text(value)}</arg_value>{line}"
        for name, value in call.arguments.items()
    )
    return f"<tool_call>{call.name}{line}{arguments}</tool_call>"


GLM = [
    Example(text=_pairs(WEATHER, "\n"), calls=(WEATHER,)),
    Example(text=f"Both:{_pairs(ODD, '')}{_pairs(PING, '')}", content="Both:", calls=(ODD, PING)),
    Example(
        text=f"\n<think>So</think>\nNow\n{_pairs(_LINES, chr(10))}\n",
        thinking="So",
        content="Now",
        calls=(_LINES,),
    ),
    Example(text="<tool_call>f<arg_key>a</arg_key>b", content="<tool_call>f<arg_key>a</arg_key>b"),
    Example(text="<tool_call>f<arg_key>a</arg_key><arg_", content=""),
    Example(text="a</think>b<tool", starts_thinking=True, thinking="a", content="b<tool"),
]
