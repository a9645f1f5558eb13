from __future__ import annotations

from datetime import date
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from puna.chat.errors import TemplateError
from puna.chat.messages import CalledFunction, Message, ToolCall
from puna.chat.replies.thinking import ThinkingTags
from puna.chat.templates.go.analysis import tool_tag
from puna.chat.templates.go.template import GoChatTemplate
from puna.chat.tools import Tool, ToolFunction, tool_variables
from puna.gotemplate.template import GoTemplate

pytestmark = pytest.mark.unit

SCHEMA = {
    "type": "object",
    "properties": {
        "when": {"type": ["integer", "null"], "title": "dropped"},
        "city": {"type": "string", "description": "<where>", "enum": ["a"]},
        "more": {"anyOf": [{"type": "array"}, {"type": "object"}], "type": "string"},
    },
    "required": ["city"],
    "additionalProperties": False,
}
TOOLS = [tool_variables(Tool(ToolFunction("weather", "tells", SCHEMA)))]
CALLED = Message(
    "assistant", tool_calls=[ToolCall(CalledFunction("weather", {"city": "<b>", "at": 3}), id="c1")]
)


def rendered(source: str, *messages: Message, **variables) -> str:
    return GoChatTemplate(source).render(messages, **variables)


def test_messages_of_one_role_are_one_except_for_results():
    source = "{{ range .Messages }}[{{ .Role }}:{{ .Content }}]{{ end }}{{ .System }}"
    messages = [
        Message("system", "s"),
        Message("user", "a"),
        Message("user", "b"),
        Message("tool", "1"),
        Message("tool", "2"),
        Message("system", "t"),
    ]
    assert rendered(source, *messages) == "[system:s][user:a\n\nb][tool:1][tool:2][system:t]s\n\nt"


@given(
    st.lists(
        st.builds(
            Message, st.sampled_from(["system", "user", "assistant", "tool"]), st.text("ab", max_size=3)
        )
    )
)
def test_collation_loses_nothing_and_leaves_no_pairs(messages):
    source = '{{ range .Messages }}{{ .Role }}{{ "\\x00" }}{{ .Content }}{{ "\\x01" }}{{ end }}'
    parts = [part.split("\0") for part in rendered(source, *messages).split("\1")[:-1]]
    roles = [role for role, _ in parts]
    assert all(one != other or one == "tool" for one, other in pairwise(roles))
    said = {role: "\n\n".join(m.content for m in messages if m.role == role) for role in roles}
    assert {role: "\n\n".join(text for one, text in parts if one == role) for role in roles} == said


LEGACY = (
    "{{ if .System }}S:{{ .System }} {{ end }}{{ if .Prompt }}U:{{ .Prompt }} {{ end }}A:{{ .Response }}<e>"
)


@pytest.mark.parametrize(
    ("messages", "text"),
    [
        ("u", "U:u0 A:"),
        ("su", "S:s0 U:u1 A:"),
        ("suau", "S:s0 U:u1 A:a2<e>U:u3 A:"),
        ("ua", "U:u0 A:a1"),
        ("us", "U:u0 A:<e>S:s1 A:"),
        ("uxa", "U:u0 A:a2"),
        ("", "A:"),
    ],
)
def test_templates_of_one_turn_are_executed_for_each(messages, text):
    roles = {"s": "system", "u": "user", "a": "assistant", "x": "tool"}
    assert rendered(LEGACY, *[Message(roles[r], f"{r}{i}") for i, r in enumerate(messages)]) == text


def test_a_template_without_a_place_for_the_reply_gets_one_at_its_end():
    conversation = [Message("user", "u"), Message("assistant", "a"), Message("user", "v")]
    assert rendered("<{{ .Prompt }}>", *conversation) == "<u>a<v>"


def test_what_stands_behind_the_reply_is_left_out_in_branches_too():
    source = "{{ if .Prompt }}{{ .Prompt }}|{{ .Response }}</s>{{ else }}x{{ end }}tail"
    assert rendered(source, Message("user", "u")) == "u|"


def test_tools_print_as_json_and_know_some_keywords():
    properties = (
        '{"city":{"type":"string","description":"\\u003cwhere\\u003e","enum":["a"]},'
        '"more":{"anyOf":[{"type":"array"},{"type":"object"}],"type":"string"},"when":{"type":["integer","null"]}}'
    )
    parameters = f'{{"type":"object","required":["city"],"properties":{properties}}}'
    function = f'{{"name":"weather","description":"tells","parameters":{parameters}}}'
    tool = f'{{"type":"function","function":{function}}}'
    source = (
        "{{ if .Messages }}{{ .Tools }}|{{ json .Tools }}|{{ range .Tools }}{{ . }}|{{ .Function }}|"
        "{{ .Function.Parameters }}|{{ json .Function.Parameters.Required }}{{ end }}{{ end }}"
    )
    assert rendered(source, Message("user"), tools=TOOLS) == (
        f'[{tool}]|[{tool}]|{tool}|{function}|{parameters}|["city"]'
    )


def test_types_are_written_as_typescript_has_them():
    source = (
        "{{ range .Messages }}{{ end }}"
        "{{ range $name, $p := (index .Tools 0).Function.Parameters.Properties }}"
        "{{ $name }}:{{ $p.Type }}:{{ toTypeScriptType $p }};{{ end }}{{ toTypeScriptType 1 }}"
    )
    assert rendered(source, tools=TOOLS) == (
        "city:string:string;more:string:any[] | Record<string, any>;when:[integer null]:number | null;any"
    )


def test_calls_and_results():
    source = (
        "{{ range .Messages }}{{ range .ToolCalls }}{{ .ID }} {{ .Function.Index }} {{ .Function.Name }} "
        "{{ .Function.Arguments }} "
        "{{ range $k, $v := .Function.Arguments }}{{ $k }}={{ $v }} {{ end }}{{ end }}"
        "{{ .ToolName }}{{ .ToolCallID }}{{ .Thinking }}{{ len .Images }};{{ end }}"
    )
    result = Message("tool", "sun", tool_name="weather", tool_call_id="c1")
    assert rendered(source, CALLED, result, Message("assistant", thinking="hm")) == (
        'c1 0 weather {"at":3,"city":"\\u003cb\\u003e"} at=3 city=<b> 0;weatherc10;hm0;'
    )


@pytest.mark.parametrize(
    ("variables", "text"),
    [
        ({}, "false  false"),
        ({"enable_thinking": False}, "false  true"),
        ({"enable_thinking": True}, "true medium true"),
        ({"enable_thinking": True, "reasoning_effort": "low"}, "true low true"),
    ],
)
def test_whether_to_think(variables, text):
    source = "{{ .Think }} {{ .ThinkLevel }} {{ .IsThinkSet }}{{ .Response }}"
    assert rendered(source, Message("user", "u"), **variables) == text


def test_dates_and_what_a_model_fills_in():
    template = GoChatTemplate(
        "{{ if .Suffix }}P{{ .Prompt }}S{{ .Suffix }}M{{ else }}{{ currentDate }}{{ end }}"
    )
    assert template.fills_in
    assert template.fill_in("a", "b") == "PaSbM"
    assert template.render([]) == date.today().isoformat()


THINKS = "{{ range .Messages }}{{ if .Thinking }}<th>\n{{ .Thinking }}\n</th>{{ end }}{{ .Content }}{{ end }}"


@pytest.mark.parametrize(
    ("source", "tags"),
    [
        (THINKS, ThinkingTags("<th>", "</th>")),
        (
            "{{ range $i, $m := .Messages }}<a>{{ if and $m (not .Thinking) }}x{{ end }}</a>{{ end }}",
            ThinkingTags("<a>", "</a>"),
        ),
        ("{{ range .Other }}<t>{{ .Thinking }}</t>{{ end }}{{ .Messages }}", None),
        ("<t>{{ .Thinking }}</t>{{ .Messages }}", None),
        ("{{ range .Messages }}{{ .Thinking }}</t>{{ end }}", None),
    ],
)
def test_tags_of_thoughts_stand_around_their_place(source, tags):
    template = GoChatTemplate(source)
    assert template.thinking == tags
    assert template.supports_thinking == (tags is not None)


@pytest.mark.parametrize(
    ("body", "tag"),
    [
        ('<tool_call>\n{"name": "{{ .Function.Name }}"}', "<tool_call>"),
        ('{"name": 1}', "{"),
        ("{{ range .ToolCalls }}[CALLS] {{ . }}{{ end }}", "[CALLS]"),
        ("  {{ .Content }}<late>", "{"),
    ],
)
def test_the_tag_of_calls_is_the_first_text_of_earlier_ones(body, tag):
    source = "{{ range .Messages }}{{ if .Content }}x{{ else if .ToolCalls }}" + body + "{{ end }}{{ end }}"
    assert tool_tag(GoTemplate(source, {}).body) == tag


def test_errors_name_the_line():
    with pytest.raises(TemplateError, match="line 2 of the chat template: undefined variable"):
        GoChatTemplate("\n{{ $x }}")
    with pytest.raises(TemplateError, match="line 1 of the chat template: can't evaluate field Foo"):
        rendered("{{ range .Messages }}{{ .Foo }}{{ end }}", Message("user"))
    with pytest.raises(TemplateError, match="surrogates"):
        rendered("{{ .Prompt }}", Message("user", "\ud800"))
