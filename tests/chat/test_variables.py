"""Calls and results reach a template as it wants them."""

from __future__ import annotations

from typing import Any

import pytest

from puna.chat.messages import CalledFunction, Message, ToolCall
from puna.chat.templates.call_style import CallStyle
from puna.chat.templates.template import ChatTemplate
from puna.chat.templates.variables import conversation_variables

pytestmark = pytest.mark.unit


def call(name: str, call_id: str | None = None, **arguments: Any) -> ToolCall:
    return ToolCall(CalledFunction(name, arguments), id=call_id)


def shown(source: str, *messages: Message) -> str:
    return ChatTemplate(source, bos_token="", eos_token="").render([Message("user"), *messages])


def test_results_belong_to_calls_and_stand_in_their_order() -> None:
    caller = Message("assistant", tool_calls=[call("f", "1"), call("g"), call("f", "3"), call("h", "4")])
    results = [
        Message("tool", "third", tool_call_id="3"),
        Message("tool", "second", tool_name="g"),
        Message("tool", "first"),
        Message("tool", "fourth", tool_call_id="unknown"),
        Message("tool", "one too many", tool_call_id="5"),
    ]
    variables = conversation_variables([caller, *results, Message("user", "?")], CallStyle())
    ids = [each["id"] for each in variables[0]["tool_calls"]]
    assert (ids[0], len(ids[1]), *ids[2:]) == ("1", 9, "3", "4")
    assert [(each["content"], each["tool_call_id"], each.get("name")) for each in variables[1:-1]] == [
        ("first", "1", "f"),
        ("second", ids[1], "g"),
        ("third", "3", "f"),
        ("fourth", "4", "h"),
        ("one too many", "5", None),
    ]


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ("{{ f.name }}{{ f.arguments | tojson }}", 'f{"a": 1}'),
        ("{{ f.name + f.arguments }}", 'f{"a":1}'),
        ("{{ f.name }}{{ f.arguments }}", 'f{"a":1}'),
        ("{% for k, v in f.arguments.items() %}{{ f.name + k }}={{ v }}{% endfor %}", "fa=1"),
        ("{% if m.content is none %}{{ f.name }}{{ f.arguments | tojson }}{% endif %}", 'f{"a": 1}'),
        ("{{ m.content + f.name }}{{ f.arguments | tojson }}", 'f{"a": 1}'),
    ],
)
def test_arguments_and_empty_content_as_a_template_wants_them(written: str, text: str) -> None:
    source = "{% for m in messages %}{% for c in m.tool_calls %}{% set f = c.function %}CALL{% endfor %}"
    source = source.replace("CALL", written) + "{% endfor %}"
    assert shown(source, Message("assistant", tool_calls=[call("f", a=1)])) == text


def test_thoughts_give_way_where_a_template_takes_only_one() -> None:
    source = """{% for m in messages if m.tool_calls %}
    {%- if m.content and m.thinking %}{{ raise_exception('not both') }}{% endif %}
    {{- m.content }}{{ m.thinking }}{{ m.tool_calls[0].function | tojson }}{% endfor %}"""
    calls = [call("f")]
    assert shown(source, Message("assistant", "says", "thinks", calls)).startswith('says{"')
    assert shown(source, Message("assistant", "", "thinks", calls)).startswith('thinks{"')
