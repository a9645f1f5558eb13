"""Chat completions."""

from __future__ import annotations

import pytest

from puna.worker.call_client import WorkerDied
from tests.api.fake_runtime import Script
from tests.api.ollama.test_generate import prompt_text

pytestmark = pytest.mark.native

HI = [{"role": "user", "content": "hi"}]
CHAT = "/v1/chat/completions"


def test_chat_completion_is_one_object(client, runtime):
    reply = client.post(CHAT, {"model": "M", "messages": HI}).json()
    assert reply["id"].startswith("chatcmpl-")
    prompt_tokens = len(runtime.requests[-1].prompt)
    assert {key: value for key, value in reply.items() if key not in ("id", "created")} == {
        "object": "chat.completion",
        "model": "M",
        "system_fingerprint": "fp_ollama",
        "choices": [
            {"index": 0, "message": {"role": "assistant", "content": "Hello"}, "finish_reason": "stop"}
        ],
        "usage": {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": 2,
            "total_tokens": prompt_tokens + 2,
            "prompt_tokens_details": {"cached_tokens": 0},
        },
    }


def test_chat_stream(client):
    *chunks, done = client.events(CHAT, {"model": "m", "messages": HI, "stream": True})
    assert done == "[DONE]"
    assert [chunk["choices"][0]["delta"] for chunk in chunks] == [
        {"role": "assistant", "content": "Hel"},
        {"content": "lo"},
        {},
    ]
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None, None, "stop"]
    assert len({(chunk["id"], chunk["created"]) for chunk in chunks}) == 1
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert not any("usage" in chunk for chunk in chunks)


def test_chat_stream_with_usage(client):
    body = {"model": "m", "messages": HI, "stream": True, "stream_options": {"include_usage": True}}
    *chunks, usage, done = client.events(CHAT, body)
    assert done == "[DONE]"
    assert usage["choices"] == []
    assert usage["usage"]["completion_tokens"] == 2
    assert not any("usage" in chunk for chunk in chunks)


def test_chat_stream_without_any_text_still_says_whose_message_it_is(client, runtime):
    runtime.script = Script(pieces=[])
    chunks = client.events(CHAT, {"model": "m", "messages": HI, "stream": True})
    assert [chunk["choices"][0]["delta"] for chunk in chunks[:-1]] == [
        {"role": "assistant", "content": ""},
        {},
    ]


def test_reasoning_is_apart_from_content(client, runtime, add_model):
    add_model("thinker", "thinker")
    runtime.script = Script(pieces=["<think>hm", "m.</think>Yes"])
    reply = client.post(CHAT, {"model": "thinker", "messages": HI}).json()
    assert reply["choices"][0]["message"] == {"role": "assistant", "content": "Yes", "reasoning": "hmm."}
    chunks = client.events(CHAT, {"model": "thinker", "messages": HI, "stream": True})
    assert [chunk["choices"][0]["delta"] for chunk in chunks[:-1]] == [
        {"role": "assistant", "content": "", "reasoning": "hm"},
        {"reasoning": "m."},
        {"content": "Yes"},
        {},
    ]


@pytest.mark.parametrize("field", [{"reasoning": {"effort": "none"}}, {"reasoning_effort": "none"}])
def test_reasoning_effort(client, runtime, add_model, field):
    add_model("thinker", "thinker")
    client.post(CHAT, {"model": "thinker", "messages": HI, **field})
    assert prompt_text(runtime).endswith("<think>\n\n</think>\n\n")
    client.post(CHAT, {"model": "thinker", "messages": HI, "reasoning_effort": "minimal"})
    assert prompt_text(runtime).endswith("[low]")


def test_logprobs(client):
    body = {"model": "m", "messages": HI, "logprobs": True, "top_logprobs": 1}
    entries = client.post(CHAT, body).json()["choices"][0]["logprobs"]["content"]
    assert [entry["token"] for entry in entries] == ["Hel", "lo"]
    assert entries[0]["top_logprobs"][0]["token"] == "other"
    first = client.events(CHAT, {**body, "stream": True})[0]
    assert first["choices"][0]["logprobs"]["content"][0]["bytes"] == [72, 101, 108]


def test_temperature_and_top_p_are_1_unless_given_whatever_the_model_has(client, runtime, add_model):
    add_model("cool", params={"temperature": 0.1, "top_p": 0.2, "top_k": 3})
    for path, body in ((CHAT, {"messages": HI}), ("/v1/completions", {"prompt": "hi"})):
        client.post(path, {"model": "cool", **body})
        sampling = runtime.requests[-1].sampling
        assert (sampling.temperature, sampling.top_p, sampling.top_k) == (1.0, 1.0, 3)
        client.post(path, {"model": "cool", "temperature": 0, "top_p": 0.5, **body})
        sampling = runtime.requests[-1].sampling
        assert (sampling.temperature, sampling.top_p) == (0.0, 0.5)


def test_other_parameters_arrive(client, runtime):
    body = {
        "model": "m",
        "messages": HI,
        "max_tokens": 1,
        "seed": 7,
        "stop": "END",
        "frequency_penalty": 0.5,
        "presence_penalty": 0.25,
        "user": "ignored",
    }
    reply = client.post(CHAT, body).json()
    job = runtime.requests[-1]
    assert reply["choices"][0]["finish_reason"] == "length"
    assert client.post(CHAT, {**body, "max_completion_tokens": 2}).status_code == 200
    assert runtime.requests[-1].max_tokens == 2
    assert (job.max_tokens, job.stop) == (1, ["END"])
    assert (job.sampling.seed, job.sampling.frequency_penalty, job.sampling.presence_penalty) == (
        7,
        0.5,
        0.25,
    )


def test_texts_in_parts_are_one_message(client, runtime):
    content = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    refused = {"role": "assistant", "content": None, "refusal": "I will not."}
    assert client.post(CHAT, {"model": "m", "messages": [{"role": "user", "content": content}, refused]})
    assert "user\none\ntwo<|im_end|>\n<|im_start|>assistant\nI will not.<|im_end|>" in prompt_text(runtime)


def called_with(arguments: str) -> list[dict]:
    call = {"id": "1", "function": {"name": "f", "arguments": arguments}}
    return [{"role": "assistant", "tool_calls": [call]}]


def image(url: object) -> list[dict]:
    return [{"role": "user", "content": [{"type": "image_url", "image_url": url}]}]


@pytest.mark.parametrize(
    ("messages", "text"),
    [
        ([], "[] is too short - 'messages'"),
        (None, "[] is too short - 'messages'"),
        ([{"role": "user", "content": None}], "invalid message content type: <nil>"),
        ([{"role": "user", "content": 5}], "invalid message content type: int"),
        ([{"role": "user", "content": ["text"]}], "invalid message format"),
        (image("http://example.com/a.png"), "image URLs are not currently supported"),
        (image({"url": "data:image/tiff;base64,aGk="}), "invalid image input"),
        (image({}), "invalid image input"),
        (image({"url": "data:image/png;base64,aGk="}), "does not support vision"),
        (called_with("{"), "invalid tool call arguments"),
        (called_with('{"a": ' * 200 + "1" + "}" * 200), "nested too deep"),
        (called_with('{"a": [' + "0," * 500_000 + "0]}") * 2, "over 1000000 values"),
    ],
)
def test_messages_that_cannot_be_used_are_400(client, messages, text):
    response = client.post(CHAT, {"model": "m", "messages": messages})
    assert response.status_code == 400
    assert text in response.json()["error"]["message"]


@pytest.mark.parametrize(
    ("field", "text"),
    [
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "does not support tools"),
        ({"tools": [{"type": "function"}]}, "tools[0] has no name"),
        ({"tools": [{"type": "custom"}]}, "tools[0] is of type 'custom'"),
        ({"tool_choice": "sometimes"}, "invalid tool_choice"),
        ({"tool_choice": {"type": "function"}}, "a tool without a name"),
        ({"tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "none"}}}, "allowed_tools has"),
        ({"max_tokens": 10**15}, "max_tokens must not be more than"),
        ({"max_completion_tokens": 10**15}, "max_completion_tokens must not be more than"),
        ({"temperature": 1e300}, "temperature is out of range"),
        ({"seed": 2**63}, "seed is out of range"),
        ({"logit_bias": {"x": 1}}, "logit_bias must have numbers of tokens"),
        ({"logit_bias": {"1": 101}}, "logit_bias of token 1 must be between -100 and 100"),
        ({"logit_bias": {"123456789": 1}}, "logit_bias has token 123456789"),
        ({"logit_bias": {str(n): 1 for n in range(1025)}}, "logit_bias must be an object with 1024"),
        ({"response_format": {"type": "poem"}}, "invalid type of response format: 'poem'"),
        ({"response_format": {"type": "json_schema"}}, "needs a schema"),
        ({"stop": [1.5]}, "invalid type for 'stop' field: float"),
        ({"reasoning_effort": "enormous"}, 'invalid reasoning value: "enormous"'),
        ({"top_logprobs": 21}, "top_logprobs must be between 0 and 20"),
        ({"temperature": "hot"}, "temperature"),
    ],
)
def test_what_cannot_be_honoured_is_400(client, field, text):
    response = client.post(CHAT, {"model": "m", "messages": HI, **field})
    assert response.status_code == 400
    assert text in response.json()["error"]["message"]


def test_plain_response_format_is_fine(client):
    body = {"model": "m", "messages": HI, "response_format": {"type": "text"}}
    assert client.post(CHAT, body).status_code == 200


def test_biases_of_tokens_arrive(client, runtime):
    assert (
        client.post(CHAT, {"model": "m", "messages": HI, "logit_bias": {"3": -100, "5": 1.5}}).status_code
        == 200
    )
    assert runtime.requests[-1].sampling.logit_bias == {3: -100.0, 5: 1.5}


def test_errors_have_openais_shape(client, runtime):
    response = client.post(CHAT, {"model": "none", "messages": HI})
    assert response.status_code == 404
    assert response.json() == {
        "error": {
            "message": "model 'none' not found",
            "type": "not_found_error",
            "param": None,
            "code": None,
        }
    }
    assert client.post(CHAT, {"messages": []}).json()["error"]["type"] == "invalid_request_error"
    runtime.script = Script(pieces=[], error=WorkerDied("it stopped"))
    response = client.post(CHAT, {"model": "m", "messages": HI, "stream": True})
    assert response.status_code == 500
    assert response.json()["error"]["type"] == "api_error"


def test_error_in_a_stream_is_an_event_and_there_is_no_done(client, runtime):
    runtime.script = Script(error=WorkerDied("it stopped"))
    events = client.events(CHAT, {"model": "m", "messages": HI, "stream": True})
    assert events[-1]["error"]["message"] == "it stopped"
    assert "[DONE]" not in events
