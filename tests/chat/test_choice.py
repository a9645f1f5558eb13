from __future__ import annotations

import pytest

from puna.chat.errors import TemplateError
from puna.chat.templates.choice import choose
from puna.chat.templates.model_templates import ModelTemplates
from tests.chat.go.pairs import PAIRS

pytestmark = pytest.mark.unit

GO, JINJA = PAIRS["chatml"]
PLAIN = "{{ messages[0].content }}"
TOOLS_ONLY = "{% for tool in tools %}{% endfor %}"
ROUND_TRIP = "{{ tools }}{{ message.tool_calls }}{% if message.role == 'tool' %}{% endif %}"
GO_PLAIN = "{{ .Prompt }}"
GO_TOOLS = "{{ .Tools }}{{ range .Messages }}{{ end }}"
GO_ROUND_TRIP = '{{ .Tools }}{{ range .Messages }}{{ .ToolCalls }}{{ if eq .Role "tool" }}{{ end }}{{ end }}'
HARMONY = "<|start|>{{ .Prompt }}<|end|><|channel|><|message|>"


@pytest.mark.parametrize(
    ("jinja", "go", "prefers_go", "source"),
    [
        (None, "", None, "none"),
        (PLAIN, "", None, "gguf_chat_template"),
        (None, GO_PLAIN, None, "go_template"),
        (PLAIN, GO_PLAIN, None, "go_template"),
        (TOOLS_ONLY, GO_PLAIN, None, "gguf_chat_template"),
        (TOOLS_ONLY, GO_PLAIN, True, "go_template"),
        (PLAIN, GO_PLAIN, False, "gguf_chat_template"),
        (None, GO_PLAIN, False, "none"),
        (TOOLS_ONLY, GO_TOOLS, None, "go_template"),
        (ROUND_TRIP, GO_TOOLS, None, "gguf_chat_template"),
        (ROUND_TRIP, GO_ROUND_TRIP, None, "go_template"),
        (TOOLS_ONLY + "<think></think>", GO_ROUND_TRIP, None, "go_template"),
        (ROUND_TRIP + "<think></think>", GO_ROUND_TRIP, None, "gguf_chat_template"),
        (JINJA, GO, None, "go_template"),
        (7, GO_PLAIN, None, "go_template"),
    ],
)
def test_the_template_that_offers_more_wins(jinja, go, prefers_go, source):
    assert choose(jinja, ModelTemplates(go=go, prefers_go=prefers_go)).source == source


def test_channels_are_read_as_such_where_the_model_is_of_that_family():
    choice = choose(TOOLS_ONLY, ModelTemplates(go=HARMONY, family="gptoss"))
    assert (choice.source, choice.parser, choice.go.family.name) == ("harmony", "harmony", "harmony")
    assert choose(None, ModelTemplates(go=HARMONY, family="llama")).source == "go_template"
    assert choice.think_levels == ("low", "medium", "high")


@pytest.mark.parametrize(
    ("jinja", "templates", "source", "in_go"),
    [
        (
            PLAIN,
            ModelTemplates(go=GO_PLAIN, renderer="qwen3-coder", parser="harmony"),
            "renderer_parser",
            False,
        ),
        (PLAIN, ModelTemplates(go=GO_PLAIN, renderer="qwen3-coder"), "renderer", False),
        (PLAIN, ModelTemplates(go=GO_PLAIN, parser="harmony"), "parser", True),
        (PLAIN, ModelTemplates(parser="harmony"), "parser", False),
    ],
)
def test_named_renderers_and_parsers_go_first(jinja, templates, source, in_go):
    choice = choose(jinja, templates)
    assert (choice.source, choice.go is not None and choice.jinja is None) == (source, in_go)
    assert choice.capabilities == (["tools", "thinking"] if templates.parser else [])


@pytest.mark.parametrize(
    ("templates", "error"),
    [
        (ModelTemplates(renderer="x"), 'unknown renderer "x"'),
        (ModelTemplates(parser="x"), 'unknown parser "x"'),
        (ModelTemplates(parser="glimmer"), 'unknown parser "glimmer"'),
        (ModelTemplates(renderer="gemma4"), "has no chat template"),
        (ModelTemplates(go="{{ if"), "line 1 of the chat template"),
    ],
)
def test_what_is_not_known_is_refused(templates, error):
    with pytest.raises(TemplateError, match=error):
        choose(None, templates)


def test_capabilities_come_from_the_template_in_use():
    assert choose(PLAIN, ModelTemplates(go=GO)).capabilities == ["tools", "thinking"]
    assert choose(None, ModelTemplates(go="{{ .Suffix }}")).capabilities == ["insert"]
    assert choose(ROUND_TRIP, ModelTemplates(go=GO_PLAIN)).capabilities == ["tools"]
