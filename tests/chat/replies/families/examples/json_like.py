"""Replies of families that write calls as JSON."""

from __future__ import annotations

import json

from puna.chat.replies.pieces import Call
from tests.chat.replies.families.examples.example import ODD, PING, WEATHER, Example


def _object(call: Call, key: str = "arguments") -> str:
    return json.dumps({"name": call.name, key: call.arguments}, ensure_ascii=False)


def _list(*calls: Call) -> str:
    return json.dumps([{"name": call.name, "arguments": call.arguments} for call in calls])


def _tagged(call: Call) -> str:
    return f"<tool_call>\n{_object(call)}\n</tool_call>"


_AS_STRING = json.dumps({"name": ODD.name, "arguments": json.dumps(ODD.arguments)})
HERMES = [
    Example(text=_tagged(WEATHER), calls=(WEATHER,)),
    Example(text=f"{_tagged(ODD)}\n{_tagged(PING)}", calls=(ODD, PING)),
    Example(
        text=f"<think>\nHm, <tool_call> is it.\n</think>\n\nLet me see:\n\n{_tagged(WEATHER)}",
        thinking="Hm, <tool_call> is it.\n",
        content="Let me see:",
        calls=(WEATHER,),
    ),
    Example(
        text=f"One moment.</think>{_tagged(PING)}\n<think>\nMore.</think>\n{_tagged(ODD)} Done. \n",
        starts_thinking=True,
        thinking="One moment.More.",
        content="Done. \n",
        calls=(PING, ODD),
    ),
    Example(
        text=f"\n<think>I call {_tagged(WEATHER)}\nthen", thinking="I call ", content="then", calls=(WEATHER,)
    ),
    Example(text=f"<tool_call>{_AS_STRING}</tool_call>", calls=(ODD,)),
    Example(text=f"<tool_call>{_list(WEATHER, PING)}", calls=(WEATHER, PING)),
    Example(text=f"<tool_call>{_object(WEATHER)}\n{_object(PING)}</tool_call>", calls=(WEATHER, PING)),
    Example(
        text=f'a < b {_tagged(PING)} and <tool_call>{{"name": "f", "arg', content="a < b  and", calls=(PING,)
    ),
    Example(text="1 <tool_call>no</tool_call> <", content="1 <tool_call>no</tool_call> <"),
    Example(text='<tool_call>{"a": 1}</tool_call>.', content='<tool_call>{"a": 1}</tool_call>.'),
]
SMOLLM2 = [
    Example(text=f"<tool_call>{_list(WEATHER)}</tool_call>", calls=(WEATHER,)),
    Example(
        text="Well:\n<tool_call>[\n" + ",\n".join(map(_object, (ODD, PING))) + "\n]</tool_call>\n",
        content="Well:",
        calls=(ODD, PING),
    ),
    Example(text="<tool_call>[]</tool_call>"),
    Example(text="[1] <b>", content="[1] <b>"),
]
GRANITE3 = [
    Example(text=f"<|tool_call|>{_list(WEATHER)}", calls=(WEATHER,)),
    Example(text=f"Ok <|tool_call|> {_list(PING, ODD)}\n", content="Ok", calls=(PING, ODD)),
    Example(text="a <| b", content="a <| b"),
]
LLAMA = [
    Example(text=_object(WEATHER, "parameters"), calls=(WEATHER,)),
    Example(text=f"<|python_tag|>{_object(ODD, 'parameters')}", calls=(ODD,)),
    Example(text=f"\n{_object(PING, 'parameters')}; {_object(ODD, 'parameters')}\n", calls=(PING, ODD)),
    Example(text='{ \n"nam": "ot', content='{ \n"nam": "ot'),
    Example(text='{"name": "other", "parameters": {}} ', content='{"name": "other", "parameters": {}} '),
    Example(text=f"It is {_object(PING)}.\n", content=f"It is {_object(PING)}.\n"),
    Example(text='{"a": [1, "}"]}', content='{"a": [1, "}"]}'),
    Example(text="[1, 2, ", content=""),
]
LLAMA_PYTHONIC = [
    Example(text="[get_weather(city='Bergen', unit=\"C°\")]", calls=(WEATHER,)),
    Example(
        text='<|python_tag|>[ping.all-hosts(), get_weather(city=\'a "b" \\\\ c\\n</tool_call> [TOOL_CALLS] '
        "<think> }]) é 😀', unit=7, place={'name': '{[', 'within': {'name': \"'\", 'at': []}})]",
        calls=(PING, ODD),
    ),
    Example(text="[see](https://example.org) and more", content="[see](https://example.org) and more"),
    Example(text="I [get_weather()]", content="I [get_weather()]"),
]
MISTRAL = [
    Example(text=f"[TOOL_CALLS]{_list(WEATHER)}", calls=(WEATHER,)),
    Example(
        text=f'[TOOL_CALLS] [{_object(ODD)[:-1]}, "id": "aBc456789"}}, {_object(PING)}]', calls=(ODD, PING)
    ),
    Example(text=f"See [1]. [TOOL_CALLS]{_list(PING)}", content="See [1].", calls=(PING,)),
    Example(text="[TOOL_CALLS]? no", content="[TOOL_CALLS]? no"),
]


def _args(call: Call, call_id: str = "") -> str:
    return f"[TOOL_CALLS]{call.name}{call_id}[ARGS]{json.dumps(call.arguments, ensure_ascii=False)}"


MISTRAL_IDS = [
    Example(text=_args(WEATHER, "[CALL_ID]aBc456789"), calls=(WEATHER,)),
    Example(
        text=f"Both: {_args(ODD, '[CALL_ID]aBc456789')}{_args(PING, '[CALL_ID]123456789')}",
        content="Both:",
        calls=(ODD, PING),
    ),
]
MINISTRAL = [
    Example(text=_args(WEATHER), calls=(WEATHER,)),
    Example(
        text=f"[THINK]So [TOOL.[/THINK]Now {_args(ODD)}{_args(PING)}",
        thinking="So [TOOL.",
        content="Now",
        calls=(ODD, PING),
    ),
    Example(text="[TOOL_CALLS]f[ARG", content=""),
    Example(text="[THINK]Hm", thinking="Hm"),
]
JSON = [
    Example(text=_object(ODD), calls=(ODD,)),
    Example(text=f"<think>Well{{</think>\n{_list(WEATHER, PING)}", thinking="Well{", calls=(WEATHER, PING)),
    Example(text='{"name": "nobody"}, ', content='{"name": "nobody"}, '),
    Example(text="A { brace", content="A { brace"),
]
JSON_TAGGED = [
    Example(text=f"So:<TOOLCALL>[{_object(ODD, 'parameters')}]</TOOLCALL> ", content="So:", calls=(ODD,)),
    Example(text="<TOOLCALL>\n[", content=""),
]
JSON_BEHIND_TEXT = [
    Example(text='Action: ```json\n[\n {"tool_name": "ping.all-hosts", "parameters": {}}\n]', calls=(PING,)),
    Example(text="Action: ```jso", content="Action: ```jso"),
]
