"""The Anthropic face."""

from __future__ import annotations

import base64
import json
import re
from typing import Any

import pytest

from puna.daemon.busy import ServerBusy
from puna.worker.call_client import WorkerDied
from tests.api.fake_runtime import Script
from tests.api.ollama.test_generate import prompt_text

pytestmark = pytest.mark.native

MESSAGES = "/v1/messages"
HI = [{"role": "user", "content": "hi"}]
WEATHER = {
    "name": "weather",
    "description": "Of today.",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}},
}
CALL = '<tool_call>{"name": "weather", "arguments": {"city": "Ulm"}}</tool_call>'


def body(model: str = "m", **fields: Any) -> dict[str, Any]:
    return {"model": model, "max_tokens": 100, "messages": HI, **fields}


def stream(client, request: dict[str, Any]) -> list[dict[str, Any]]:
    """The events, whose names are their types."""
    response = client.post(MESSAGES, {**request, "stream": True})
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "text/event-stream"
    assert response.headers["cache-control"] == "no-cache"
    *frames, last = response.text.split("\n\n")
    assert last == ""
    events = []
    for frame in frames:
        name, data = frame.split("\n")
        events.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {events[-1]['type']}"
    return events


def turn(role: str, text: str) -> str:
    return f"<|im_start|>{role}\n{text}<|im_end|>\n"


ASKS = "<|im_start|>assistant\n"


def test_a_message_is_one_object(client, runtime):
    runtime.script = Script(cached_tokens=7)
    response = client.post(MESSAGES + "?beta=true", body("M"))
    reply = response.json()
    assert re.fullmatch("msg_[0-9a-f]{24}", reply.pop("id"))
    assert re.fullmatch("req_[0-9a-f]{24}", response.headers["request-id"])
    assert reply == {
        "type": "message",
        "role": "assistant",
        "model": "M",
        "content": [{"type": "text", "text": "Hello"}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {
            "input_tokens": len(runtime.requests[-1].prompt) - 7,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 7,
            "output_tokens": 2,
        },
    }


def test_a_stream_of_text(client, runtime):
    runtime.script = Script(cached_tokens=7)
    start, *blocks, delta, stop = stream(client, body())
    num_prompt = len(runtime.requests[-1].prompt)
    message = start["message"]
    assert (start["type"], message["content"], message["stop_reason"]) == ("message_start", [], None)
    assert (message["usage"]["input_tokens"], message["usage"]["output_tokens"]) == (num_prompt, 0)
    assert blocks == [
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hel"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "lo"}},
        {"type": "content_block_stop", "index": 0},
    ]
    assert delta == {
        "type": "message_delta",
        "delta": {"stop_reason": "end_turn", "stop_sequence": None},
        "usage": {
            "input_tokens": num_prompt - 7,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 7,
            "output_tokens": 2,
        },
    }
    assert stop == {"type": "message_stop"}


def blocks_of(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """As a client puts them together."""
    blocks: list[dict[str, Any]] = []
    open_index = None
    for event in events:
        match event["type"]:
            case "content_block_start":
                assert open_index is None
                assert event["index"] == len(blocks)
                open_index = event["index"]
                blocks.append({**event["content_block"]})
            case "content_block_delta":
                assert event["index"] == open_index
                delta = dict(event["delta"])
                if delta.pop("type") == "input_json_delta":
                    blocks[-1]["input"] = json.loads(delta["partial_json"])
                else:
                    ((field, text),) = delta.items()
                    blocks[-1][field] += text
            case "content_block_stop":
                assert event["index"] == open_index
                open_index = None
    assert open_index is None
    return blocks


@pytest.mark.parametrize("cut", [1, 7, 1000])
def test_thoughts_text_and_calls_are_blocks_in_their_order(client, runtime, add_model, cut):
    add_model("caller", "caller")
    text = "\nLet me see.\n" + CALL + "\n" + CALL
    runtime.script = Script(pieces=[text[i : i + cut] for i in range(0, len(text), cut)])
    request = body("caller", tools=[WEATHER], max_tokens=1000)
    whole = client.post(MESSAGES, request).json()
    events = stream(client, request)
    assert whole["stop_reason"] == events[-2]["delta"]["stop_reason"] == "tool_use"
    for blocks in (whole["content"], blocks_of(events)):
        said, *calls = blocks
        assert (said["type"], said["text"].strip()) == ("text", "Let me see.")
        ids = {call.pop("id") for call in calls}
        assert calls == [{"type": "tool_use", "name": "weather", "input": {"city": "Ulm"}}] * 2
        assert len(ids) == 2


def test_thoughts_have_a_signature(client, runtime, add_model):
    add_model("thinker", "thinker")
    runtime.script = Script(pieces=["<think>hm", "m.</think>Yes"])
    request = body("thinker", thinking={"type": "adaptive"})
    whole = client.post(MESSAGES, request).json()["content"]
    assert blocks_of(stream(client, request)) == whole
    assert [block["type"] for block in whole] == ["thinking", "text"]
    assert (whole[0]["thinking"], whole[1]["text"]) == ("hmm.", "Yes")
    assert whole[0]["signature"]
    again = [*HI, {"role": "assistant", "content": whole}, *HI]
    assert client.post(MESSAGES, {**request, "messages": again}).status_code == 200
    assert turn("assistant", "Yes") in prompt_text(runtime)


@pytest.mark.parametrize(
    ("fields", "end"),
    [
        ({"thinking": {"type": "disabled"}}, "<think>\n\n</think>\n\n"),
        ({"thinking": {"type": "enabled", "budget_tokens": 1024}}, ASKS),
        ({"thinking": {"type": "adaptive"}, "output_config": {"effort": "xhigh"}}, "[high]"),
        ({"output_config": {"effort": "low"}}, "[low]"),
        ({"thinking": {"type": "disabled"}, "output_config": {"effort": "low"}}, "<think>\n\n</think>\n\n"),
        ({}, ASKS),
    ],
)
def test_how_hard_to_think(client, runtime, add_model, fields, end):
    add_model("thinker", "thinker")
    client.post(MESSAGES, body("thinker", **fields))
    assert prompt_text(runtime).endswith(end)


def test_a_model_without_thoughts_does_without(client, runtime):
    thinking = {"type": "enabled", "budget_tokens": 1024}
    reply = client.post(MESSAGES, body(thinking=thinking, output_config={"effort": "high"})).json()
    assert [block["type"] for block in reply["content"]] == ["text"]
    assert prompt_text(runtime) == turn("user", "hi") + ASKS


def test_an_empty_reply_has_no_blocks(client, runtime):
    runtime.script = Script(pieces=["\n"])
    assert client.post(MESSAGES, body()).json()["content"] == []
    types = [event["type"] for event in stream(client, body())]
    assert types == ["message_start", "message_delta", "message_stop"]


def test_why_it_stopped(client, runtime):
    assert client.post(MESSAGES, body(max_tokens=1)).json()["stop_reason"] == "max_tokens"
    runtime.script = Script(stop_string="END")
    request = body(stop_sequences=["END", "FIN"])
    reply = client.post(MESSAGES, request).json()
    assert (reply["stop_reason"], reply["stop_sequence"]) == ("stop_sequence", "END")
    assert stream(client, request)[-2]["delta"] == {"stop_reason": "stop_sequence", "stop_sequence": "END"}
    assert runtime.requests[-1].stop == ["END", "FIN"]


def test_parameters_are_the_models_unless_given(client, runtime, add_model):
    add_model("cool", params={"temperature": 0.1, "top_p": 0.2, "top_k": 3, "stop": ["S"]})
    client.post(MESSAGES, body("cool"))
    job = runtime.requests[-1]
    assert (job.sampling.temperature, job.sampling.top_p, job.sampling.top_k) == (0.1, 0.2, 3)
    assert (job.max_tokens, job.stop) == (100, ["S"])
    client.post(MESSAGES, body("cool", temperature=0, top_p=0.5, top_k=1, metadata={"user_id": "u"}))
    sampling = runtime.requests[-1].sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k) == (0.0, 0.5, 1)


def test_system_is_a_text_or_blocks(client, runtime):
    client.post(MESSAGES, body(system="Be brief."))
    assert prompt_text(runtime).startswith(turn("system", "Be brief."))
    blocks = [
        {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1.77.a3f; cch=0f3a1;"},
        {"type": "text", "text": "Be ", "cache_control": {"type": "ephemeral"}},
        {"type": "text", "text": "wise."},
    ]
    client.post(MESSAGES, body(system=blocks))
    assert prompt_text(runtime) == turn("system", "Be wise.") + turn("user", "hi") + ASKS
    messages = [*HI, {"role": "system", "content": [{"type": "text", "text": "Mode: plan."}]}, *HI]
    client.post(MESSAGES, body(messages=messages))
    assert turn("user", "hi") + turn("system", "Mode: plan.") + turn("user", "hi") in prompt_text(runtime)


def test_calls_and_results_are_rendered_results_before_what_is_said(client, runtime, add_model):
    add_model("caller", "caller")
    messages = [
        *HI,
        {
            "role": "assistant",
            "content": [
                {"type": "redacted_thinking", "data": "x"},
                {"type": "text", "text": "See:"},
                {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Ulm"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "And? "},
                {"type": "tool_result", "tool_use_id": "toolu_1", "content": "rain"},
                {"type": "tool_result", "tool_use_id": "toolu_1", "is_error": True},
                {
                    "type": "tool_result",
                    "tool_use_id": "toolu_1",
                    "content": [
                        {"type": "text", "text": "a"},
                        {"type": "tool_reference", "tool_name": "weather"},
                        {"type": "document", "title": "T", "source": {"type": "text", "data": "D"}},
                    ],
                },
                {"type": "hologram", "x": 1},
                {"type": "text", "text": "So?"},
            ],
        },
    ]
    assert client.post(MESSAGES, body("caller", messages=messages)).status_code == 200
    assert prompt_text(runtime) == (
        turn("user", "hi")
        + turn(
            "assistant",
            'See:<tool_call>{"name": "weather", "arguments": {"city": "Ulm"}}</tool_call>',
        )
        + turn("tool", "rain")
        + turn("tool", "error")
        + turn("tool", "aweather can be called.T\nD")
        + turn("user", "And? So?")
        + ASKS
    )


def test_what_servers_tools_found_is_a_result(client, runtime, add_model):
    add_model("caller", "caller")
    found = {"type": "web_search_tool_result", "tool_use_id": "s1", "content": [{"title": "T"}]}
    call = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "q"}}
    content = [call, found, {"type": "text", "text": "Found."}]
    messages = [*HI, {"role": "assistant", "content": content}, *HI]
    client.post(MESSAGES, body("caller", messages=messages))
    assert turn("tool", '[{"title":"T"}]') + turn("assistant", "Found.") in prompt_text(runtime)


def test_tools_are_offered_as_the_choice_has_it(client, runtime, add_model):
    add_model("caller", "caller")
    other = {**WEATHER, "name": "clock", "defer_loading": True, "eager_input_streaming": True}
    search = {"type": "web_search_20250305", "name": "web_search", "max_uses": 8}
    request = body("caller", tools=[WEATHER, search, other])
    for choice, words in (
        ({"type": "auto"}, ["weather", "clock"]),
        ({"type": "none"}, []),
        ({"type": "tool", "name": "clock", "disable_parallel_tool_use": True}, ["clock"]),
    ):
        assert client.post(MESSAGES, {**request, "tool_choice": choice}).status_code == 200
        assert ("clock" in prompt_text(runtime)) == bool(words)
        assert "web_search" not in prompt_text(runtime)
        grammar = runtime.requests[-1].grammar
        assert all(word in grammar for word in words)
        assert ("weather" in grammar) == ("weather" in words)


def test_the_answers_format(client, runtime):
    schema = {"type": "object", "properties": {"zebra": {"type": "integer"}}}
    wanted = {"type": "json_schema", "schema": schema}
    for field in ({"output_config": {"format": wanted}}, {"output_format": wanted}):
        client.post(MESSAGES, body(**field))
        assert "zebra" in runtime.requests[-1].grammar


def test_tokens_are_counted_without_the_model(client, runtime, add_model):
    add_model("caller", "caller")
    request = {"model": "caller", "messages": HI * 300, "tools": [WEATHER], "system": "Be wise."}
    counted = client.post(MESSAGES + "/count_tokens?beta=true", request)
    assert (counted.status_code, runtime.num_loads, runtime.text.num_open) == (200, 0, 0)
    client.post(MESSAGES, {**request, "max_tokens": 1, "messages": HI})
    few = client.post(MESSAGES + "/count_tokens", {**request, "messages": HI}).json()["input_tokens"]
    assert few == len(runtime.requests[-1].prompt)
    assert counted.json()["input_tokens"] > 2048


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"model": ""}, "model is required"),
        ({"max_tokens": 0}, "max_tokens is required and must be positive"),
        ({"messages": []}, "messages is required"),
        ({"messages": [{"role": "user", "content": [{"text": "no type"}]}]}, "block without a type"),
        ({"messages": [{"role": "user", "content": 5}]}, "must be a string or an array"),
        (
            {"messages": [{"role": "user", "content": [{"type": "text"}]}]},
            "needs the field 'text', as string",
        ),
        ({"messages": [{"role": "assistant", "content": [{"type": "tool_use", "id": ""}]}]}, "'name'"),
        ({"system": [{"type": "image"}]}, "system may have blocks of type text"),
        ({"tool_choice": {"type": "maybe"}}, "tool_choice.type must be one of"),
        ({"tool_choice": {"type": "tool"}}, "tool_choice.name is required"),
        ({"tools": [{"input_schema": {}}]}, "tools.0: name is required"),
        ({"tools": [WEATHER]}, "does not support tools"),
        ({"output_config": {"format": {"type": "xml"}}}, "json_schema"),
        ({"top_k": "many"}, "top_k"),
    ],
)
def test_what_is_wrong_is_said(client, fields, error):
    response = client.post(MESSAGES, body(**fields))
    reply = response.json()
    assert (response.status_code, reply["type"]) == (400, "error")
    assert reply["error"]["type"] == "invalid_request_error"
    assert error in reply["error"]["message"]
    assert reply["request_id"] == response.headers["request-id"]


def test_images_are_base64_and_need_a_model_that_sees(client):
    def post(source: dict[str, str]) -> str:
        content = [{"type": "image", "source": source}]
        reply = client.post(MESSAGES, body(messages=[{"role": "user", "content": content}])).json()
        return reply["error"]["message"]

    assert post({"type": "url", "url": "http://x"}) == (
        "invalid image source type: url. Only base64 images are supported."
    )
    assert "invalid base64" in post({"type": "base64", "data": "!"})
    image = {"type": "base64", "media_type": "image/png", "data": base64.b64encode(b"x").decode()}
    assert "does not support vision" in post(image)


def test_errors_have_types_ids_and_come_within_streams(client, runtime):
    assert client.post(MESSAGES, body("nobody")).json()["error"] == {
        "type": "not_found_error",
        "message": "model 'nobody' not found",
    }
    assert client.get(MESSAGES).status_code == 405
    unknown = client.post(MESSAGES + "/batches", {})
    assert (unknown.status_code, unknown.json()["error"]["type"]) == (404, "not_found_error")
    runtime.script = Script(pieces=[], error=ServerBusy())
    busy = client.post(MESSAGES, body(stream=True))
    assert (busy.status_code, busy.json()["error"]["type"]) == (503, "overloaded_error")
    assert busy.headers["retry-after"] == "1"
    runtime.script = Script(error=WorkerDied("gone"))
    *_, last = stream(client, body())
    assert (last["type"], last["error"]) == ("error", {"type": "api_error", "message": "gone"})
    assert re.fullmatch("req_[0-9a-f]{24}", last["request_id"])
