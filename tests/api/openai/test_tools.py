"""Tools and structured answers of chat completions."""

from __future__ import annotations

import json

import pytest
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat import ChatCompletionChunk

from tests.api.fake_runtime import Script
from tests.api.ollama.test_generate import prompt_text

pytestmark = pytest.mark.native

HI = [{"role": "user", "content": "hi"}]
CHAT = "/v1/chat/completions"
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = {
    "type": "function",
    "function": {"name": "weather", "description": "Of a city.", "parameters": SCHEMA},
}
TIME = {"type": "function", "function": {"name": "what_time"}}
TOOLS = {"model": "caller", "messages": HI, "tools": [WEATHER, TIME]}
TWO_CALLS = [
    'Let me see. <tool_call>{"name": "weather", "argum',
    'ents": {"city": "Köln"}}</tool_call>\n<tool_call>{"name": "what_time"',
    "}</tool_call>",
]


@pytest.fixture(autouse=True)
def caller(add_model):
    add_model("caller", "caller")


def calls_of(message: dict) -> list[tuple]:
    return [
        (call["index"], call["type"], call["function"]["name"], call["function"]["arguments"])
        for call in message["tool_calls"]
    ]


CALLED = [(0, "function", "weather", '{"city":"Köln"}'), (1, "function", "what_time", "{}")]


def test_calls_are_apart_from_content(client, runtime):
    runtime.script = Script(pieces=TWO_CALLS)
    (choice,) = client.post(CHAT, TOOLS).json()["choices"]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"].strip() == "Let me see."
    assert calls_of(choice["message"]) == CALLED
    ids = {call["id"] for call in choice["message"]["tool_calls"]}
    assert len(ids) == 2
    assert all(call_id.startswith("call_") for call_id in ids)
    assert "Tools: " in prompt_text(runtime)


def test_streamed_calls_are_what_openais_client_makes_of_them(client, runtime):
    runtime.script = Script(pieces=TWO_CALLS)
    *chunks, done = client.events(CHAT, {**TOOLS, "stream": True})
    assert done == "[DONE]"
    state = ChatCompletionStreamState()
    for chunk in chunks:
        state.handle_chunk(ChatCompletionChunk.model_validate(chunk))
    (choice,) = state.get_final_completion().choices
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content.strip() == "Let me see."
    assert calls_of(choice.message.model_dump()) == CALLED
    assert chunks[-1]["choices"][0]["delta"] == {}


def test_calls_of_several_replies_are_numbered_apart(client, runtime):
    runtime.script = Script(pieces=TWO_CALLS)
    choices = client.post(CHAT, {**TOOLS, "n": 2, "logprobs": True}).json()["choices"]
    assert [calls_of(choice["message"]) for choice in choices] == [CALLED, CALLED]
    assert [len(choice["logprobs"]["content"]) for choice in choices] == [3, 3]
    finishes = [
        chunk["choices"][0]["finish_reason"]
        for chunk in client.events(CHAT, {**TOOLS, "n": 2, "stream": True})[:-1]
        if chunk["choices"][0]["finish_reason"]
    ]
    assert finishes == ["tool_calls", "tool_calls"]


def test_a_reply_that_is_cut_says_so_whatever_was_called(client, runtime):
    runtime.script = Script(pieces=[*TWO_CALLS, "more"])
    (choice,) = client.post(CHAT, {**TOOLS, "max_tokens": 3}).json()["choices"]
    assert (choice["finish_reason"], len(choice["message"]["tool_calls"])) == ("length", 2)


def allowed(mode: str) -> dict:
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": [{**WEATHER}]}}


@pytest.mark.parametrize(
    ("choice", "names"),
    [
        ("auto", {"weather", "what_time"}),
        ("required", {"weather", "what_time"}),
        ({"type": "function", "function": {"name": "weather"}}, {"weather"}),
        (allowed("auto"), {"weather"}),
        (allowed("required"), {"weather"}),
    ],
)
def test_tool_choice_decides_what_the_grammar_lets_through(client, runtime, choice, names):
    assert client.post(CHAT, {**TOOLS, "tool_choice": choice}).status_code == 200
    grammar = runtime.requests[-1].grammar
    assert {name for name in ("weather", "what_time") if name in grammar} == names
    assert "what_time" in prompt_text(runtime)  # tools that may not be called stay in the prompt


@pytest.mark.parametrize("choices", [("auto", "required"), (allowed("auto"), allowed("required"))])
def test_calls_can_be_required(client, runtime, choices):
    for choice in choices:
        client.post(CHAT, {**TOOLS, "tool_choice": choice})
    may, must = (request.grammar for request in runtime.requests[-2:])
    assert may != must


def test_with_tool_choice_none_there_are_no_tools(client, runtime):
    assert client.post(CHAT, {**TOOLS, "tool_choice": "none"}).status_code == 200
    assert runtime.requests[-1].grammar == ""
    assert "Tools: " not in prompt_text(runtime)


def test_one_call_at_a_time(client, runtime):
    grammars = []
    for parallel in (True, False):
        client.post(CHAT, {**TOOLS, "parallel_tool_calls": parallel})
        grammars.append(runtime.requests[-1].grammar)
    assert grammars[0] != grammars[1]
    client.post(CHAT, {**TOOLS, "tool_choice": {"type": "function", "function": {"name": "weather"}}})
    named = runtime.requests[-1].grammar
    both = {**TOOLS, "tool_choice": allowed("required"), "parallel_tool_calls": False}
    client.post(CHAT, both)
    assert named == runtime.requests[-1].grammar


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"tool_choice": {"type": "function", "function": {"name": "f"}}}, "not among the tools"),
        ({"tool_choice": "required", "tools": []}, "there are no tools"),
    ],
)
def test_choices_that_cannot_be_are_400(client, fields, text):
    response = client.post(CHAT, {**TOOLS, **fields})
    assert response.status_code == 400
    assert text in response.json()["error"]["message"]


def test_calls_and_results_are_rendered(client, runtime):
    call = {"id": "1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    empty = {"id": "2", "type": "function", "function": {"name": "now", "arguments": ""}}
    messages = [
        *HI,
        {"role": "assistant", "content": None, "reasoning_content": "hm", "tool_calls": [call, empty]},
        {"role": "tool", "content": [{"type": "text", "text": "2"}], "tool_call_id": "1"},
        {"role": "assistant", "content": None, "function_call": {"name": "sub", "arguments": "{}"}},
        {"role": "function", "name": "sub", "content": "3"},
    ]
    assert client.post(CHAT, {**TOOLS, "messages": messages}).status_code == 200
    text = prompt_text(runtime)
    assert '<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>' in text
    assert '{"name": "now", "arguments": {}}' in text
    assert '{"name": "sub", "arguments": {}}' in text
    assert "tool\n2<|im_end|>" in text
    assert "tool\n3<|im_end|>" in text


def test_functions_of_the_first_api(client, runtime):
    runtime.script = Script(pieces=TWO_CALLS[:2])
    body = {"model": "caller", "messages": HI, "functions": [WEATHER["function"]]}
    (choice,) = client.post(CHAT, body).json()["choices"]
    assert choice["finish_reason"] == "function_call"
    assert choice["message"]["function_call"] == {"name": "weather", "arguments": '{"city":"Köln"}'}
    assert "tool_calls" not in choice["message"]
    chunks = client.events(CHAT, {**body, "stream": True, "function_call": {"name": "weather"}})[:-1]
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert [delta["function_call"]["name"] for delta in deltas if "function_call" in delta] == ["weather"]
    named = runtime.requests[-1].grammar
    client.post(CHAT, {**body, "function_call": "auto"})
    assert named != runtime.requests[-1].grammar


@pytest.mark.parametrize(
    ("wanted", "word"),
    [
        ({"type": "json_object"}, "object"),
        ({"type": "json_schema", "json_schema": {"name": "place", "schema": SCHEMA, "strict": True}}, "city"),
        ({"type": "grammar", "syntax": "regex", "definition": "[a-f]{7}"}, "[a-f]{7}"),
    ],
)
def test_response_formats_become_grammars(client, runtime, wanted, word):
    assert client.post(CHAT, {"model": "m", "messages": HI, "response_format": wanted}).status_code == 200
    assert word in runtime.requests[-1].grammar


@pytest.mark.parametrize(("choice", "content"), [("auto", "<tool"), ("required", "")])
def test_the_beginning_of_a_tag_is_text_only_where_text_may_be(client, runtime, choice, content):
    runtime.script = Script(pieces=['<tool_call>{"name": "what_time"}</tool_call>', "<tool"], reason="length")
    (reply,) = client.post(CHAT, {**TOOLS, "tool_choice": choice}).json()["choices"]
    assert len(reply["message"]["tool_calls"]) == 1
    assert reply["message"]["content"] == content


def test_answers_in_a_format_may_call_as_well(client, runtime):
    wanted = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"enum": ["yes", "no"]}}}
    assert client.post(CHAT, {**TOOLS, "response_format": wanted}).status_code == 200
    grammar = runtime.requests[-1].grammar
    assert all(word in grammar for word in ("yes", "weather"))


def test_what_is_tolerated(client):
    extras = {
        "metadata": {"a": "b"},
        "user": "u",
        "store": True,
        "service_tier": "auto",
        "prediction": {"type": "content", "content": "x"},
        "modalities": ["text"],
        "verbosity": "low",
        "stream_options": None,
        "tool_choice": None,
        "tools": None,
        "logit_bias": None,
    }
    assert client.post(CHAT, {"model": "m", "messages": HI, **extras}).status_code == 200


def test_arguments_keep_the_order_of_their_keys(client, runtime):
    arguments = {"z": 1, "a": {"y": [1, 2.5, None], "b": "ü"}}
    runtime.script = Script(
        pieces=[f"<tool_call>{json.dumps({'name': 'weather', 'arguments': arguments})}</tool_call>"]
    )
    (choice,) = client.post(CHAT, TOOLS).json()["choices"]
    text = choice["message"]["tool_calls"][0]["function"]["arguments"]
    assert list(json.loads(text)) == ["z", "a"]
    assert json.loads(text) == arguments


def test_integers_of_any_length_can_be_in_schemas_and_calls(client, runtime):
    schema = {"type": "integer", "maximum": 10**30}
    call = {"id": "1", "function": {"name": "f", "arguments": json.dumps({"n": 10**30})}}
    messages = [*HI, {"role": "assistant", "content": None, "tool_calls": [call]}]
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"properties": {"n": schema}}}}]
    assert client.post(CHAT, {**TOOLS, "messages": messages, "tools": tools}).status_code == 200
    assert '"arguments": {"n": 1e+30}' in prompt_text(runtime)
