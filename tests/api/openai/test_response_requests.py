"""What requests for OpenAI's responses become, and which cannot be honoured."""

from __future__ import annotations

import pytest

from tests.api.fake_runtime import Script
from tests.api.ollama.test_generate import prompt_text
from tests.api.openai.test_responses import CALL, SCHEMA, TOOLS, URL, WEATHER

pytestmark = pytest.mark.native


@pytest.fixture(autouse=True)
def models(add_model):
    add_model("caller", "caller")
    add_model("thinker", "thinker")


def test_models_without_thoughts_take_any_effort(client):
    assert client.post(URL, {"model": "m", "input": "hi", "reasoning": {"effort": "high"}}).status_code == 200


def custom(syntax: str, definition: str) -> dict:
    form = {"type": "grammar", "syntax": syntax, "definition": definition}
    return {"type": "custom", "name": "patch", "format": form}


CONVERSATION = [
    {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Rules."}]},
    {"role": "user", "content": "Weather?"},
    {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "hm"}]},
    {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "Let me see."}],
        "phase": "commentary",
    },
    {"type": "function_call", "call_id": "1", "name": "weather", "arguments": '{"city": "Bonn"}'},
    {"type": "function_call", "call_id": "2", "namespace": "files", "name": "read", "arguments": ""},
    {"type": "custom_tool_call", "call_id": "3", "name": "patch", "input": "+x"},
    {"type": "function_call_output", "call_id": "1", "output": "rain"},
    {"type": "function_call_output", "call_id": "2", "output": [{"type": "input_text", "text": "text"}]},
    {"type": "custom_tool_call_output", "call_id": "3", "output": "done"},
    {"type": "web_search_call", "id": "ws_1", "status": "completed"},
    {"type": "item_reference", "id": "rs_2"},
]


def test_conversations_are_rendered(client, runtime):
    assert client.post(URL, {"model": "caller", "input": CONVERSATION, "tools": TOOLS}).status_code == 200
    text = prompt_text(runtime)
    assert "Rules.<|im_end|>" in text
    assert (
        'assistant\nLet me see.<tool_call>{"name": "weather", "arguments": {"city": "Bonn"}}</tool_call>'
        '<tool_call>{"name": "files__read", "arguments": {}}</tool_call>'
        '<tool_call>{"name": "patch", "arguments": {"input": "+x"}}</tool_call><|im_end|>'
    ) in text
    for result in ("rain", "text", "done"):
        assert f"tool\n{result}<|im_end|>" in text
    assert '"name": "files__patch"' in text
    assert "web_search" not in text


def test_replies_can_be_sent_back(client, runtime):
    runtime.script = Script(pieces=["Let me see.", CALL % ("files__patch", '{"input": "+x"}')])
    reply = client.post(URL, {"model": "caller", "input": "hi", "tools": TOOLS}).json()
    call = reply["output"][1]
    result = {"type": "custom_tool_call_output", "call_id": call["call_id"], "output": "done"}
    again = {
        "model": "caller",
        "input": [{"role": "user", "content": "hi"}, *reply["output"], result],
        "tools": TOOLS,
    }
    assert client.post(URL, again).status_code == 200
    assert '<tool_call>{"name": "files__patch", "arguments": {"input": "+x"}}</tool_call>' in prompt_text(
        runtime
    )


@pytest.mark.parametrize(
    ("choice", "names"),
    [
        ("required", {"weather", "files__read", "files__patch"}),
        ({"type": "function", "name": "weather"}, {"weather"}),
        ({"type": "function", "name": "read", "namespace": "files"}, {"files__read"}),
        ({"type": "custom", "name": "patch", "namespace": "files"}, {"files__patch"}),
        (
            {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "weather"}]},
            {"weather"},
        ),
    ],
)
def test_tool_choice(client, runtime, choice, names):
    body = {"model": "caller", "input": "hi", "tools": TOOLS, "tool_choice": choice}
    assert client.post(URL, body).status_code == 200
    grammar = runtime.requests[-1].grammar
    assert {name for name in ("weather", "files__read", "files__patch") if name in grammar} == names


@pytest.mark.parametrize(
    ("form", "word"),
    [
        ({"type": "json_object"}, "object"),
        ({"type": "json_schema", "name": "n", "schema": SCHEMA, "strict": True}, "city"),
    ],
)
def test_text_formats_become_grammars(client, runtime, form, word):
    assert client.post(URL, {"model": "m", "input": "hi", "text": {"format": form}}).status_code == 200
    assert word in runtime.requests[-1].grammar


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"input": None}, "input is required"),
        ({"previous_response_id": "resp_1"}, "previous_response_id: responses are not stored"),
        ({"conversation": "c"}, "conversation: responses are not stored"),
        ({"prompt": {"id": "p"}}, "prompt: there are no stored prompts"),
        ({"background": True}, "background"),
        ({"truncation": "maybe"}, "truncation must be"),
        ({"max_output_tokens": 10**15}, "max_output_tokens must not be more"),
        ({"input": [5]}, "input[0]: not an object"),
        ({"input": [{"type": "poem"}]}, 'input[0]: unknown input item type: "poem"'),
        ({"input": [{"role": "user", "content": [{"type": "input_file"}]}]}, "file inputs are not currently"),
        ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "nothing is stored"),
        ({"input": [{"type": "function_call", "name": "f", "arguments": "{}"}]}, "call_id must be a string"),
        (
            {"input": [{"type": "function_call", "call_id": "1", "name": "f", "arguments": "{"}]},
            "input[0]: invalid tool call arguments",
        ),
        ({"tools": [WEATHER, WEATHER]}, "there are several called 'weather'"),
        ({"tools": [{"type": "function"}]}, "name` in tools[0]"),
        ({"tools": [{}]}, "tools[0] has no type"),
        ({"tools": [custom("regex", "((")]}, "pattern"),
        ({"tools": [custom("yacc", "x")]}, "a grammar needs a syntax"),
        ({"tools": [WEATHER], "model": "m"}, "does not support tools"),
        ({"reasoning": {"effort": "enormous"}}, "invalid reasoning value"),
        ({"text": {"format": {"type": "json_schema"}}}, "needs a schema"),
    ],
)
def test_what_cannot_be_honoured_is_400(client, fields, text):
    response = client.post(URL, {"model": "caller", "input": "hi", **fields})
    assert response.status_code == 400
    assert text in response.json()["error"]["message"]


def test_a_prompt_that_is_too_long_is_refused_where_it_must_not_be_cut(client, add_model):
    add_model("small", "small")
    body = {"model": "small", "input": "word " * 200}
    assert client.post(URL, body).status_code == 200
    response = client.post(URL, {**body, "truncation": "disabled"})
    assert (response.status_code, response.json()["error"]["type"]) == (400, "invalid_request_error")
