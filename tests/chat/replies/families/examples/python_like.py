"""Replies of families that write calls in Python's syntax."""

from __future__ import annotations

from puna.chat.replies.pieces import Call
from tests.chat.replies.families.examples.example import ODD, PING, WEATHER, Example


def _python(call: Call) -> str:
    return f"{call.name}({', '.join(f'{name}={value!r}' for name, value in call.arguments.items())})"


def _lfm2(*calls: Call) -> str:
    return f"<|tool_call_start|>[{', '.join(map(_python, calls))}]<|tool_call_end|>"


_FENCE = Call("get_weather", {"city": "<|tool_call_end|></function_calls>)]", "unit": True})
LFM2 = [
    Example(text=_lfm2(WEATHER), calls=(WEATHER,)),
    Example(text=f"<think>Or?</think>{_lfm2(ODD, PING, _FENCE)}", thinking="Or?", calls=(ODD, PING, _FENCE)),
    Example(text=f"{_lfm2(PING)}Checking now.", content="Checking now.", calls=(PING,)),
    Example(text="a <|tool_call_start|>[b]<|x", content="a <|tool_call_start|>[b]<|x"),
    Example(text="a <|tool_call_start|>[f(b='", content="a"),
]
OLMO3 = [
    Example(text=f"<function_calls>{_python(WEATHER)}</function_calls>", calls=(WEATHER,)),
    Example(
        text="Let me see.\n<function_calls>\n"
        f"{_python(ODD)}\n{_python(PING)}\n{_python(_FENCE)}\n</function_calls>\n",
        content="Let me see.",
        calls=(ODD, PING, _FENCE),
    ),
    Example(text="So.</think>\n\nYes.", starts_thinking=True, thinking="So.", content="Yes."),
    Example(text="<function_calls>no</function_calls>", content="<function_calls>no</function_calls>"),
    Example(text=f"<function_calls>{_python(PING)}\nget_w", calls=(PING,)),
]
