"""Templates render as in the library that they were written for; errors name their line."""

from __future__ import annotations

import re
from datetime import datetime

import pytest

from puna.chat.errors import TemplateError
from puna.chat.messages import CalledFunction, Message, ToolCall
from puna.chat.templates.template import ChatTemplate, mentions_tools, writes_thoughts
from puna.tokenizer import load_tokenizer
from tests.tokenizer.vocabularies import all_pairs_bpe, sentencepiece

pytestmark = pytest.mark.native

HELLO = [Message("user", "Hello")]
MISTRAL = """{{ bos_token }}{% for message in messages %}
{%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
    {{- raise_exception('Conversation roles must alternate user/assistant') }}
{%- endif %}
{%- if message['role'] == 'user' %}
    {{- '[INST] ' + message['content'] + ' [/INST]' }}
{%- else %}
    {{- ' ' + message['content'] | trim + eos_token }}
{%- endif %}
{%- endfor %}"""
TOOLS = """{% if tools %}
    {% for tool in tools %}
{{ tool | tojson }}
    {% endfor %}
{% endif %}
{% for message in messages %}
    {%- for call in message.tool_calls or [] %}
{{- call.function.name }}({{ call.function.arguments | tojson(indent=1) }})
    {% endfor %}
    {%- if message.role == 'tool' %}
{{ message.name }}={{ message.content }}#{{ message.tool_call_id }}
    {%- endif %}
{% endfor %}"""


def render(source, messages=HELLO, **variables):
    return ChatTemplate(source, bos_token="<s>", eos_token="</s>").render(messages, **variables)


def test_conversation_with_bos_and_eos():
    messages = [Message("user", "a"), Message("assistant", " b "), Message("user", "c")]
    assert render(MISTRAL, messages) == "<s>[INST] a [/INST] b</s>[INST] c [/INST]"


def test_blocks_leave_neither_their_newline_nor_the_space_before_them():
    assert render("a\n  {% if true %}\nb\n  {% endif %}\nc") == "a\nb\nc"


def test_what_a_template_refuses_is_said_in_its_own_words_with_the_line():
    with pytest.raises(TemplateError, match=r"line 3 .*must alternate"):
        render(MISTRAL, [Message("assistant", "a")])


def test_tools_and_calls_as_plain_json_in_their_order():
    tools = [{"type": "function", "function": {"name": "f", "description": "<b> & 'é'"}}]
    messages = [
        Message(
            "assistant", tool_calls=[ToolCall(CalledFunction("f", {"z": 1, "a": [True, None]}), id="c1")]
        ),
        Message("tool", "done", tool_name="f", tool_call_id="c1"),
    ]
    assert render(TOOLS, messages, tools=tools) == (
        '{"type": "function", "function": {"name": "f", "description": "<b> & \'é\'"}}\n'
        'f({\n "z": 1,\n "a": [\n  true,\n  null\n ]\n})\n'
        "f=done#c1"
    )
    assert render("{{ tools is none }}", tools=[]) == "True"


def test_thoughts_are_shown_between_calls_and_never_later():
    source = "{% for m in messages %}{{ m.thinking }}|{% endfor %}"
    turn = [Message("assistant", "a", thinking="b"), Message("tool", "c")]
    assert render(source, [Message("user"), *turn]) == "|b||"
    assert render(source, [Message("user"), *turn, Message("user")]) == "||||"


def test_variables_and_generation_prompt():
    source = "{{ enable_thinking }}{% if add_generation_prompt %}|go{% endif %}"
    assert render(source, enable_thinking=False) == "False|go"
    assert render(source, enable_thinking=True, add_generation_prompt=False) == "True"


def test_loop_controls_and_generation_blocks():
    source = (
        "{% for i in range(9) %}{% if i == 2 %}{% continue %}{% elif i == 4 %}{% break %}{% endif %}{{ i }}"
    )
    assert render(source + "{% endfor %}") == "013"
    assert render("{% generation %}{{ messages[0].content }}{% endgeneration %}") == "Hello"


def test_loop_variables_work():
    source = (
        "{% for m in messages %}{{ loop.index }}/{{ loop.length }}{{ loop.first }}{{ loop.last }}"
        "{{ (loop.previtem or loop.nextitem).content }};{% endfor %}"
    )
    messages = [Message("user", "a"), Message("user", "b")]
    assert render(source, messages) == "1/2TrueFalseb;2/2FalseTruea;"


def test_date_of_today():
    before = datetime.now()
    rendered = render("{{ strftime_now('%Y-%m-%d') }}")
    assert rendered in (f"{before:%Y-%m-%d}", f"{datetime.now():%Y-%m-%d}")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("a\n{% if %}", "line 2 .*Expected an expression"),
        ("{% for m in messages %}", "line 1 .*endfor"),
        ("a\n\n{{ messages[0].content + 1 }}", "line 3 "),
        ("{{ nothing.at.all }}", "line 1 .*nothing"),
        ("{{ 1 / 0 }}", "line 1 .*zero"),
        ("\n{{ messages | no_such_filter }}", "line 2 .*no_such_filter"),
        ("{{ messages | tojson(indent='x', nonsense=1) }}", "nonsense"),
        ("{% include 'other' %}", "line 1 "),
        ("{{ '\\ud800' }}", "surrogates"),
        ("(" * 5 + "{{ " + "(" * 5000 + " }}", "chat template"),
        ("x" * 2_000_000, "2000000 characters"),
        (7, "int"),
    ],
)
def test_error_names_the_line(source, message):
    with pytest.raises(TemplateError, match=message):
        render(source)


@pytest.mark.parametrize(
    ("source", "tools", "thinking"),
    [
        ("{{ messages }}", False, False),
        ("{% if tools %}{% endif %}", True, False),
        ("{{ message.tool_calls }}", True, False),
        ("<think>{{ x }}</think>", False, True),
        ("{{ '<think>' }}", False, False),
        ("{{ content.split('</think>')[-1] }}", False, True),
        ("{{ content.split('</think>')[-1] }}{{ message.reasoning_content }}", False, False),
    ],
)
def test_capabilities_are_seen_in_the_template(source, tools, thinking):
    assert (mentions_tools(source), writes_thoughts(source)) == (tools, thinking)


def test_tokens_come_from_the_tokenizer():
    tokenizer = load_tokenizer(sentencepiece())
    source = "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}"
    template = ChatTemplate.for_tokenizer(source, tokenizer)
    assert template is not None
    assert template.render(HELLO) == "<s>Hello</s>"


def test_bos_that_the_template_writes_is_not_doubled():
    tokenizer = load_tokenizer(sentencepiece())
    assert (
        tokenizer.encode_prompt("<s>Hello") == tokenizer.encode_prompt("Hello") == tokenizer.encode("Hello")
    )
    without = load_tokenizer(sentencepiece(add_bos_token=False))
    assert without.encode_prompt("<s>Hello") == tokenizer.encode("Hello")
    assert without.encode_prompt("Hello") == tokenizer.encode("Hello")[1:]


def test_file_without_template_gets_chatml_if_it_knows_its_tokens():
    tokenizer = load_tokenizer(all_pairs_bpe("qwen2"))
    template = ChatTemplate.for_tokenizer(None, tokenizer)
    assert template is not None
    messages = [Message("system", "Be brief."), *HELLO]
    assert template.render(messages) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"
    )


def test_file_without_template_and_tokens_for_one_gets_none():
    metadata = sentencepiece()
    metadata["tokenizer.ggml.tokens"] = [
        re.sub("im_start", "other", t) for t in metadata["tokenizer.ggml.tokens"]
    ]
    assert ChatTemplate.for_tokenizer(None, load_tokenizer(metadata)) is None
