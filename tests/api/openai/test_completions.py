"""OpenAI's completions."""

from __future__ import annotations

import json

import pytest

from tests.api.ollama.test_generate import prompt_text

pytestmark = pytest.mark.native


def test_completion(client, runtime):
    reply = client.post("/v1/completions", {"model": "m", "prompt": "hi"}).json()
    assert reply["id"].startswith("cmpl-")
    assert reply["object"] == "text_completion"
    assert reply["choices"] == [{"text": "Hello", "index": 0, "finish_reason": "stop"}]
    assert reply["usage"]["completion_tokens"] == 2
    assert prompt_text(runtime).startswith("<|im_start|>user\nhi")


def test_completion_stream(client):
    body = {"model": "m", "prompt": "hi", "stream": True}
    *chunks, done = client.events("/v1/completions", body)
    assert done == "[DONE]"
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == "Hello"
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None, None, "stop"]
    assert not any("usage" in chunk for chunk in chunks)
    body["stream_options"] = {"include_usage": True}
    *chunks, usage, done = client.events("/v1/completions", body)
    assert usage["choices"] == []
    assert usage["usage"]["total_tokens"] > 2
    assert all(chunk["usage"]["total_tokens"] == 0 for chunk in chunks)


def test_empty_completion_prompt_loads(client, runtime):
    reply = client.post("/v1/completions", {"model": "m", "prompt": ""}).json()
    assert reply["choices"] == [{"text": "", "index": 0, "finish_reason": "load"}]
    assert runtime.resident_models
    events = client.events("/v1/completions", {"model": "m", "prompt": "", "stream": True})
    assert events[0]["choices"][0]["finish_reason"] == "load"


def test_completion_that_cannot_be_done_is_400(client):
    response = client.post("/v1/completions", {"model": "m", "prompt": "a", "suffix": "b"})
    assert response.status_code == 400
    assert json.loads(response.text)["error"]["type"] == "invalid_request_error"
