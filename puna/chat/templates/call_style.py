"""How a chat template wants to be given the calls of earlier turns: found out by giving it one."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from puna.chat.replies.pieces import Call

Render = Callable[[Sequence[Mapping[str, Any]]], str]
"""The text of messages, as templates expect them; "" if the template refuses them."""

_KEY, _RESULT = "puna_argument", "puna_result"
EXAMPLE = Call("puna_function", {_KEY: 1})
_LONGEST_TAG = 64
_IN_TAG = re.compile(r"(<[^<>\s]*|\[\w*)\Z")
_ID = "callnumb1"  # nine letters or digits: Mistral takes no other


class CallStyle(NamedTuple):
    """arguments_as_text: as JSON rather than as an object (DeepSeek).
    no_content: None where nothing is said beside a call, rather than "" (DeepSeek).
    thinks_or_speaks: there must not be thoughts where something is said beside a call (gpt-oss).
    not_at_all: the template leaves calls out; they are to be what is said (Granite 3).
    """

    arguments_as_text: bool = False
    no_content: bool = False
    thinks_or_speaks: bool = False
    not_at_all: bool = False


def call_style(render: Render) -> CallStyle:
    """With which a call is written as it should be, and with nothing around it that need not be there."""
    styles = [CallStyle(as_text, no_content) for as_text in (False, True) for no_content in (False, True)]
    texts = {style: render(_conversation(style)) for style in styles}
    right = [style for style in styles if _shows_call(texts[style])]
    if not right:
        return CallStyle(not_at_all=not any(EXAMPLE.name in text for text in texts.values()))
    style = min(right, key=lambda style: len(texts[style]))
    speaks = _conversation(style, content="puna says")
    thinks = _conversation(style, content="puna says", thinking="puna thinks")
    return style._replace(thinks_or_speaks=bool(render(speaks)) and not render(thinks))


def written_call(render: Render, style: CallStyle) -> str:
    """What a template makes of a turn that consists of EXAMPLE, and what follows it."""
    conversation = _conversation(style)
    text = render(conversation)
    prompt = render(conversation[:1])
    begin = next((i for i, (a, b) in enumerate(zip(text, prompt, strict=False)) if a != b), len(prompt))
    in_tag = _IN_TAG.search(text, max(begin - _LONGEST_TAG, 0), begin)  # which both begin alike
    return text[in_tag.start() if in_tag else begin :]


def _conversation(style: CallStyle, content: str = "", thinking: str = "") -> list[dict[str, Any]]:
    name, arguments = EXAMPLE
    given = json.dumps(arguments) if style.arguments_as_text else arguments
    call = {"type": "function", "id": _ID, "function": {"name": name, "arguments": given}}
    caller: dict[str, Any] = {"role": "assistant", "content": content, "tool_calls": [call]}
    if style.no_content and not content:
        caller["content"] = None
    if thinking:
        caller |= {"thinking": thinking, "reasoning_content": thinking}
    result = {"role": "tool", "content": _RESULT, "name": name, "tool_call_id": _ID}
    return [{"role": "user", "content": "puna asks"}, caller, result]


def _shows_call(text: str) -> bool:
    """Not as Python writes an object, nor as JSON writes a text."""
    wrong = (f"{{'{_KEY}'", f'\\"{_KEY}')
    return all(part in text for part in (EXAMPLE.name, _KEY)) and not any(part in text for part in wrong)
