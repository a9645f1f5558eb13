"""Tools in POST /api/chat: what the model is shown, what its calls come out as, and their results."""

from __future__ import annotations

import re

import pytest

from tests.api.fake_runtime import Script
from tests.api.ollama.test_generate import prompt_text

pytestmark = pytest.mark.native

HI = [{"role": "user", "content": "hi"}]
ADD = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Adds.",
        "parameters": {"type": "object", "properties": {"z": {"type": "integer"}, "a": {"type": "integer"}}},
    },
}
REPLY = ["Let me ", "see.\n<tool", "_call>\n{", '"name": "add", "argu', 'ments": {"z": 1, "a": 2}}']
REPLY += ["\n</tool_call>", '\n<tool_call>{"name": "add", "arguments": {}}</tool_call>']
CALLS = [
    {"name": "add", "arguments": {"z": 1, "a": 2}, "index": 0},
    {"name": "add", "arguments": {}, "index": 1},
]


@pytest.fixture
def ask(add_model):
    """The body of a request to a model that writes calls as Hermes does."""
    add_model("caller", "caller")

    def ask(messages=HI, **fields):
        return {"model": "caller", "messages": messages, "tools": [ADD], **fields}

    return ask


def test_calls_come_in_chunks_of_their_own_without_content(client, runtime, ask):
    runtime.script = Script(pieces=REPLY)
    *chunks, final = client.lines("/api/chat", ask())
    messages = [chunk["message"] for chunk in chunks]
    assert "".join(message["content"] for message in messages) == "Let me see."
    calling = [message for message in messages if "tool_calls" in message]
    assert [message["content"] for message in calling] == ["", ""]
    calls = [call for message in calling for call in message["tool_calls"]]
    assert [call["function"] for call in calls] == CALLS
    ids = [call["id"] for call in calls]
    assert all(re.fullmatch("call_[a-z0-9]{8}", call_id) for call_id in ids)
    assert ids[0] != ids[1]
    assert (final["message"], final["done_reason"]) == ({"role": "assistant", "content": ""}, "stop")


def test_not_streamed_all_calls_are_in_one_message(client, runtime, ask):
    runtime.script = Script(pieces=REPLY)
    reply = client.post("/api/chat", ask(stream=False)).json()
    assert reply["message"]["content"] == "Let me see."
    assert [call["function"] for call in reply["message"]["tool_calls"]] == CALLS
    assert reply["done_reason"] == "stop"


def test_without_tools_a_call_is_text(client, runtime, ask):
    runtime.script = Script(pieces=REPLY)
    message = client.post("/api/chat", ask(stream=False, tools=[])).json()["message"]
    assert message == {"role": "assistant", "content": "".join(REPLY)}


def test_a_call_cut_off_is_no_text(client, runtime, ask):
    runtime.script = Script(pieces=REPLY[:4], reason="length")
    reply = client.post("/api/chat", ask(stream=False)).json()
    assert reply["message"] == {"role": "assistant", "content": "Let me see."}
    assert reply["done_reason"] == "length"


def test_the_reply_is_held_to_a_grammar_of_the_tools(client, runtime, ask):
    client.post("/api/chat", ask())
    assert '"z"' in runtime.requests[-1].grammar
    client.post("/api/chat", ask(tools=[]))
    assert runtime.requests[-1].grammar == ""


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "add"}}])
def test_calls_can_be_asked_for_as_in_openais_api(client, runtime, ask, choice):
    runtime.script = Script(pieces=REPLY[1:])
    reply = client.post("/api/chat", ask(stream=False, tool_choice=choice)).json()
    assert reply["message"]["content"] == ""
    client.post("/api/chat", ask(tool_choice="auto"))
    free, held = runtime.requests[-1].grammar, runtime.requests[-2].grammar
    assert free != held
    response = client.post("/api/chat", ask(tool_choice="sometimes"))
    assert (response.status_code, "invalid tool_choice" in response.text) == (400, True)


def test_tools_calls_and_results_are_shown_in_their_order(client, runtime, ask):
    def call(number: int) -> dict:
        return {"id": f"c{number}", "function": {"name": "add", "arguments": {"z": number, "a": 0}}}

    messages = [
        *HI,
        {"role": "assistant", "content": None, "tool_calls": [call(1), call(2)]},
        {"role": "tool", "content": "second", "tool_call_id": "c2"},
        {"role": "tool", "content": "first", "tool_name": "add"},
    ]
    client.post("/api/chat", ask(messages))
    text = prompt_text(runtime)
    shown = ['"properties": {"z": {"type": "integer"}, "a"', '{"z": 1, "a": 0}', '{"z": 2, "a": 0}']
    positions = [text.index(part) for part in (*shown, "first", "second")]
    assert positions == sorted(positions)
