"""What calls in JSON look like is learned from templates of no family."""

from __future__ import annotations

import pytest

from puna.chat.replies.calls.json_calls import JsonFormat
from puna.chat.replies.families.in_json.json_format import format_by_tag
from puna.chat.templates.template import ChatTemplate

pytestmark = pytest.mark.unit

TEMPLATE = """{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% for call in m.tool_calls or [] %}
{%- set f = call.function %}CALL{% endfor %}<|end|>{% endfor %}{# tools #}
{%- if add_generation_prompt %}<|assistant|>{% endif %}"""
CALL = '{"name": "{{ f.name }}", "arguments": {{ f.arguments | tojson }}}'


@pytest.mark.parametrize(
    ("written", "form"),
    [
        ("<tool>" + CALL + "</tool>", JsonFormat(begin="<tool>", close="</tool>")),
        ("<|tool|>[" + CALL + "]<|/tool|>", JsonFormat(begin="<|tool|>", close="<|/tool|>", is_list=True)),
        ("function call " + CALL, JsonFormat(begin="function call")),
        (CALL.replace('arguments"', 'parameters"'), JsonFormat(key="parameters")),
        ("{{ f.name }}({{ f.arguments }})", JsonFormat()),
        ('{"name": "{{ f.name }}"', JsonFormat()),
    ],
)
def test_by_an_example(written: str, form: JsonFormat) -> None:
    family = ChatTemplate(TEMPLATE.replace("CALL", written), bos_token="", eos_token="").family
    assert family.json == form
    assert family.tags == tuple(tag for tag in (form.begin, form.close) if tag)


@pytest.mark.parametrize(
    ("tag", "source", "form"),
    [
        ("{", '{"name": "{{ .Function.Name }}", "parameters": {{ .Args }}}', JsonFormat(key="parameters")),
        ("<call>", '<call>{"name"}</call>', JsonFormat(begin="<call>", close="</call>")),
        (" functools[", "functools[", JsonFormat(begin="functools", is_list=True)),
        (
            "Action: ```json\n[\n",
            '{"tool_name": "{{ .Name }}", "parameters": {{ .Arguments }}',
            JsonFormat(begin="Action: ```json", is_list=True, name="tool_name", key="parameters"),
        ),
    ],
)
def test_by_the_tag_of_a_go_template(tag: str, source: str, form: JsonFormat) -> None:
    assert format_by_tag(tag, source) == form
