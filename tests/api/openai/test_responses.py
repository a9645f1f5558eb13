"""OpenAI's responses."""

from __future__ import annotations

import json
from typing import Any

import pytest
from openai import omit
from openai.lib.streaming.responses._responses import ResponseStreamState
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from puna.api.errors import ApiError
from puna.api.openai.responses.framing import ResponseFraming
from puna.api.openai.responses.objects import new_response
from puna.api.openai.responses.schema import ResponsesRequest
from puna.api.openai.responses.tools import OfferedTools
from puna.worker.call_client import WorkerDied
from tests.api.fake_runtime import Script
from tests.api.ollama.test_generate import prompt_text

pytestmark = pytest.mark.native

URL = "/v1/responses"
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = {
    "type": "function",
    "name": "weather",
    "description": "Of a city.",
    "parameters": SCHEMA,
    "strict": True,
}
FILES = {
    "type": "namespace",
    "name": "files",
    "description": "On this machine.",
    "tools": [
        {"type": "function", "name": "read"},
        {"type": "custom", "name": "patch", "description": "Apply."},
    ],
}
TOOLS = [WEATHER, FILES, {"type": "web_search"}]
CALL = '<tool_call>{"name": "%s", "arguments": %s}</tool_call>'


@pytest.fixture(autouse=True)
def models(add_model):
    add_model("caller", "caller")
    add_model("thinker", "thinker")


def streamed(client, body: dict) -> list[dict]:
    """The events of a stream, each of a type that its frame names."""
    response = client.post(URL, {**body, "stream": True})
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("text/event-stream")
    frames = response.text.split("\n\n")
    assert frames.pop() == ""
    events = []
    for number, frame in enumerate(frames):
        name, data = frame.split("\n")
        events.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {events[-1]['type']}"
        assert events[-1]["sequence_number"] == number
    return events


def understood(events: list[dict], tools: list = ()) -> Any:
    """What OpenAI's client makes of a stream that was completed."""
    state = ResponseStreamState(input_tools=tools, text_format=omit)
    adapter = TypeAdapter(ResponseStreamEvent)
    for event in events:
        state.handle_event(adapter.validate_python(event))
    return state._completed_response


def output_of(response: dict) -> list:
    """The items without their ids."""
    hidden = ("id", "call_id", "status")
    return [{key: value for key, value in item.items() if key not in hidden} for item in response["output"]]


def said(text: str) -> dict:
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    return {"type": "message", "role": "assistant", "content": [part]}


def thought(text: str) -> dict:
    return {
        "type": "reasoning",
        "summary": [{"type": "summary_text", "text": text}],
        "encrypted_content": text,
    }


def test_response_is_one_object(client, runtime):
    runtime.script = Script(cached_tokens=3)
    body = {
        "model": "m",
        "input": "hi",
        "instructions": "Be brief.",
        "metadata": {"a": "b"},
        "prompt_cache_key": "k",
        "store": True,
        "client_metadata": {"x": 1},
        "include": ["reasoning.encrypted_content"],
        "text": {"verbosity": "low"},
        "max_output_tokens": 5,
    }
    reply = client.post(URL, body).json()
    Response.model_validate(reply, strict=True)
    assert (reply["object"], reply["status"], reply["model"]) == ("response", "completed", "m")
    assert output_of(reply) == [said("Hello")]
    num_prompt = len(runtime.requests[-1].prompt)
    assert reply["usage"] == {
        "input_tokens": num_prompt,
        "input_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 0},
        "output_tokens": 2,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": num_prompt + 2,
    }
    assert (reply["store"], reply["metadata"], reply["prompt_cache_key"]) == (False, {"a": "b"}, "k")
    assert (reply["error"], reply["incomplete_details"], reply["max_output_tokens"]) == (None, None, 5)
    assert prompt_text(runtime).startswith("<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nhi")
    sampling = runtime.requests[-1].sampling
    assert (sampling.temperature, sampling.top_p, runtime.requests[-1].max_tokens) == (1.0, 0.9, 5)


def test_events_of_a_message(client):
    events = streamed(client, {"model": "m", "input": "hi"})
    assert [event["type"].removeprefix("response.") for event in events] == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]
    assert [event["delta"] for event in events if "delta" in event] == ["Hel", "lo"]
    assert (events[0]["response"]["status"], events[0]["response"]["output"]) == ("in_progress", [])
    assert understood(events).output_text == "Hello"


def test_thoughts_words_and_calls_become_items_in_their_order(client, runtime):
    calls = [CALL % ("weather", '{"city": "Köln"}'), CALL % ("files__read", "{}")]
    runtime.script = Script(pieces=["Let me", " see.", *calls])
    body = {"model": "caller", "input": "hi", "tools": TOOLS}
    reply = client.post(URL, body).json()
    Response.model_validate(reply, strict=True)
    expected = [
        said("Let me see."),
        {"type": "function_call", "name": "weather", "arguments": '{"city":"Köln"}'},
        {"type": "function_call", "name": "read", "namespace": "files", "arguments": "{}"},
    ]
    assert output_of(reply) == expected
    assert {item["status"] for item in reply["output"]} == {"completed"}
    events = streamed(client, body)
    assert output_of(events[-1]["response"]) == expected
    done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert done == events[-1]["response"]["output"]
    assert [event["output_index"] for event in events if "item" in event] == [0, 0, 1, 1, 2, 2]
    assert understood(events, [WEATHER]).output[1].parsed_arguments == {"city": "Köln"}


def test_thoughts_are_a_reasoning_item(client, runtime):
    runtime.script = Script(pieces=["<think>hm", "m.</think>Yes"])
    body = {"model": "thinker", "input": "hi", "reasoning": {"effort": "high", "summary": "auto"}}
    assert output_of(client.post(URL, body).json()) == [thought("hmm."), said("Yes")]
    assert prompt_text(runtime).endswith("[high]")
    events = streamed(client, body)
    assert output_of(events[-1]["response"]) == [thought("hmm."), said("Yes")]
    kinds = [event["type"] for event in events]
    assert [kind for kind in kinds if "reasoning" in kind] == [
        "response.reasoning_summary_part.added",
        "response.reasoning_summary_text.delta",
        "response.reasoning_summary_text.delta",
        "response.reasoning_summary_text.done",
        "response.reasoning_summary_part.done",
    ]
    assert understood(events).output_text == "Yes"


def test_tools_that_take_a_text(client, runtime):
    patch = {
        "type": "custom",
        "name": "patch",
        "format": {"type": "grammar", "syntax": "regex", "definition": "[+-]x"},
    }
    runtime.script = Script(pieces=[CALL % ("patch", '{"input": "+x"}')])
    body = {"model": "caller", "input": "hi", "tools": [patch]}
    expected = [{"type": "custom_tool_call", "name": "patch", "input": "+x"}]
    assert output_of(client.post(URL, body).json()) == expected
    assert "[+-]x" in runtime.requests[-1].grammar
    events = streamed(client, body)
    assert output_of(events[-1]["response"]) == expected
    assert [event["delta"] for event in events if "delta" in event] == ["+x"]
    assert understood(events).output[0].input == "+x"


def test_a_reply_that_is_cut_is_incomplete(client):
    body = {"model": "m", "input": "hi", "max_output_tokens": 1}
    reply = client.post(URL, body).json()
    assert (reply["status"], reply["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    assert reply["output"][0]["status"] == "incomplete"
    assert streamed(client, body)[-1]["type"] == "response.incomplete"


def test_an_empty_reply_is_an_empty_message(client, runtime):
    runtime.script = Script(pieces=[])
    assert output_of(client.post(URL, {"model": "m", "input": "hi"}).json()) == [said("")]


def test_logprobs_are_those_of_what_is_said(client, runtime):
    runtime.script = Script(pieces=[CALL % ("weather", "{}"), "a <", "b"])
    body = {"model": "caller", "input": "hi", "tools": [WEATHER], "top_logprobs": 1}
    (part,) = client.post(URL, body).json()["output"][1]["content"]
    assert [entry["token"] for entry in part["logprobs"]] == ["a <", "b"]
    deltas = [event for event in streamed(client, body) if event["type"] == "response.output_text.delta"]
    assert [len(delta["logprobs"]) for delta in deltas] == [1, 1]
    assert part["logprobs"][0]["top_logprobs"][0]["token"] == "other"


def test_failures(client, runtime):
    runtime.script = Script(error=WorkerDied("it stopped"))
    last = streamed(client, {"model": "m", "input": "hi"})[-1]
    assert last["type"] == "response.failed"
    assert (last["response"]["status"], last["response"]["error"]["message"]) == ("failed", "it stopped")
    runtime.script = Script(pieces=[], error=WorkerDied("it stopped"))
    response = client.post(URL, {"model": "m", "input": "hi", "stream": True})
    assert (response.status_code, response.json()["error"]["type"]) == (500, "api_error")


def test_a_stream_that_fails_before_its_first_event_has_begun_all_the_same():
    framing = ResponseFraming(new_response(ResponsesRequest(model="m", input="hi")), OfferedTools([]))
    frames = framing.error_frame(ApiError(503, "busy")).decode().split("\n\n")[:-1]
    events = [json.loads(frame.split("data: ", 1)[1]) for frame in frames]
    assert [event["type"] for event in events] == [
        "response.created",
        "response.in_progress",
        "response.failed",
    ]
    assert events[-1]["response"]["error"] == {"code": "rate_limit_exceeded", "message": "busy"}
