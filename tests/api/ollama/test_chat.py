"""POST /api/chat."""

from __future__ import annotations

import pytest

from tests.api.fake_runtime import Script
from tests.api.ollama.test_generate import COUNTS, prompt_text

pytestmark = pytest.mark.native

HI = [{"role": "user", "content": "hi"}]


def turn(role: str, content: str) -> str:
    return f"<|im_start|>{role}\n{content}<|im_end|>\n"


def test_streams_messages_of_the_assistant(client):
    *deltas, final = client.lines("/api/chat", {"model": "m", "messages": HI})
    assert [delta["message"] for delta in deltas] == [
        {"role": "assistant", "content": "Hel"},
        {"role": "assistant", "content": "lo"},
    ]
    assert final["message"] == {"role": "assistant", "content": ""}
    assert (final["done"], final["done_reason"]) == (True, "stop")
    assert all(final[count] > 0 for count in COUNTS)
    assert "context" not in final


def test_not_streamed_is_one_object(client):
    reply = client.post("/api/chat", {"model": "m", "messages": HI, "stream": False}).json()
    assert reply["message"] == {"role": "assistant", "content": "Hello"}
    assert (reply["done"], reply["done_reason"], reply["eval_count"]) == (True, "stop", 2)


def test_conversation_is_rendered_in_order_and_roles_match_in_any_case(client, runtime):
    messages = [
        {"role": "System", "content": "S"},
        {"role": "USER", "content": "a"},
        {"role": "assistant", "content": "b"},
        {"role": "user", "content": "c"},
    ]
    client.post("/api/chat", {"model": "m", "messages": messages})
    turns = turn("system", "S") + turn("user", "a") + turn("assistant", "b") + turn("user", "c")
    assert prompt_text(runtime) == turns + "<|im_start|>assistant\n"


@pytest.mark.parametrize("has_states", [False, True])
def test_the_engine_is_told_where_the_reply_begins_if_there_are_states(client, runtime, has_states):
    runtime.has_states = has_states
    for path in ("/api/chat", "/v1/chat/completions"):
        client.post(path, {"model": "m", "messages": [{"role": "user", "content": "a" * 20}]})
        request = runtime.requests[-1]
        begins = [runtime.tokenizer.decode(request.prompt[:position]) for position in request.boundaries]
        assert begins == [turn("user", "a" * 20)] * has_states


def test_system_of_the_model_only_if_the_request_does_not_begin_with_one(client, runtime, add_model):
    add_model("wise", system="Be wise.", messages=[{"role": "assistant", "content": "told"}])
    client.post("/api/chat", {"model": "wise", "messages": HI})
    assert prompt_text(runtime).startswith(
        turn("system", "Be wise.") + turn("assistant", "told") + turn("user", "hi")
    )
    client.post("/api/chat", {"model": "wise", "messages": [{"role": "system", "content": "Be brief."}, *HI]})
    assert "Be wise." not in prompt_text(runtime)
    assert prompt_text(runtime).startswith(turn("assistant", "told") + turn("system", "Be brief."))


@pytest.mark.parametrize("messages", [[], None])
def test_no_messages_load_and_unload(client, runtime, messages):
    reply = client.post("/api/chat", {"model": "m", "messages": messages}).json()
    assert reply["message"] == {"role": "assistant", "content": ""}
    assert (reply["done"], reply["done_reason"]) == (True, "load")
    assert runtime.resident_models
    reply = client.post("/api/chat", {"model": "m", "messages": messages, "keep_alive": 0}).json()
    assert reply["done_reason"] == "unload"
    assert not runtime.resident_models


def test_model_is_required_and_must_exist(client):
    response = client.post("/api/chat", {"messages": HI})
    assert (response.status_code, response.json()["error"]) == (400, "model is required")
    response = client.post("/api/chat", {"model": "None", "messages": HI})
    assert (response.status_code, response.json()["error"]) == (404, "model 'None' not found")


def test_tools_and_images_are_refused(client):
    tools = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
    response = client.post("/api/chat", {"model": "m", "messages": HI, "tools": tools})
    name = "registry.ollama.ai/library/m:latest"
    assert (response.status_code, response.json()["error"]) == (400, f"{name} does not support tools")
    seen = [{"role": "user", "content": "hi", "images": ["aGk="]}]
    response = client.post("/api/chat", {"model": "m", "messages": seen})
    assert (response.status_code, response.json()["error"]) == (400, f"{name} does not support vision")


def test_results_of_tools_are_rendered(client, runtime, add_model):
    add_model("caller", "caller")
    call = {"function": {"name": "add", "arguments": {"a": 1}}}
    messages = [
        *HI,
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "content": "2", "tool_name": "add"},
    ]
    client.post("/api/chat", {"model": "caller", "messages": messages})
    assert turn("tool", "2") in prompt_text(runtime)
    client.post("/api/chat", {"model": "m", "messages": messages})  # its template leaves calls out
    assert turn("user", "Result of add:\n2") in prompt_text(runtime)


def test_embedding_model_does_not_chat(client, add_model):
    add_model("embedder", "embedder")
    response = client.post("/api/chat", {"model": "embedder", "messages": HI})
    assert (response.status_code, response.json()["error"]) == (400, '"embedder" does not support chat')


def test_thinking_model_thinks_by_default_apart_from_its_answer(client, runtime, add_model):
    add_model("thinker", "thinker")
    runtime.script = Script(pieces=["<th", "ink>\nhmm", ".</thi", "nk>\n\nYes", "!"])
    lines = client.lines("/api/chat", {"model": "thinker", "messages": HI})
    assert "".join(line["message"].get("thinking", "") for line in lines) == "hmm."
    assert "".join(line["message"]["content"] for line in lines) == "Yes!"
    whole = client.post("/api/chat", {"model": "thinker", "messages": HI, "stream": False}).json()
    assert whole["message"] == {"role": "assistant", "content": "Yes!", "thinking": "hmm."}
    reply = client.post("/api/generate", {"model": "thinker", "prompt": "hi", "stream": False}).json()
    assert (reply["response"], reply["thinking"]) == ("Yes!", "hmm.")


def test_text_held_back_as_a_possible_tag_comes_in_the_end(client, runtime, add_model):
    add_model("thinker", "thinker")
    runtime.script = Script(pieces=["<thi"])
    lines = client.lines("/api/chat", {"model": "thinker", "messages": HI, "logprobs": True})
    assert "".join(line["message"]["content"] for line in lines) == "<thi"
    assert [entry["token"] for line in lines for entry in line.get("logprobs", [])] == ["<thi"]


def test_thinking_can_be_turned_off(client, runtime, add_model):
    add_model("thinker", "thinker")
    client.post("/api/chat", {"model": "thinker", "messages": HI, "think": False})
    assert prompt_text(runtime).endswith("<think>\n\n</think>\n\n")
    client.post("/api/chat", {"model": "thinker", "messages": HI, "think": "low"})
    assert prompt_text(runtime).endswith("<|im_start|>assistant\n[low]")


@pytest.mark.parametrize(
    ("think", "status", "text"),
    [
        (True, 400, '"m" does not support thinking'),
        ("high", 400, '"m" does not support thinking'),
        (
            "maybe",
            400,
            'invalid think value: "maybe" (must be "high", "medium", "low", "max", true, or false)',
        ),
        (1, 400, "think must be a boolean or string"),
    ],
)
def test_think_that_makes_no_sense_is_400(client, think, status, text):
    response = client.post("/api/chat", {"model": "m", "messages": HI, "think": think})
    assert response.status_code == status
    assert text in response.json()["error"]


def test_plain_model_may_be_told_not_to_think(client):
    assert client.lines("/api/chat", {"model": "m", "messages": HI, "think": False})[-1]["done"]


def test_earlier_thoughts_are_taken_out_for_qwen3(client, runtime, add_model):
    add_model("deepseek-r1")
    messages = [
        *HI,
        {"role": "assistant", "content": "<think>\nhmm\n</think>\n\nYes."},
        {"role": "user", "content": "<think>mine</think> and?"},
    ]
    client.post("/api/chat", {"model": "deepseek-r1", "messages": messages})
    assert turn("assistant", "Yes.") in prompt_text(runtime)
    assert "<think>mine</think> and?" in prompt_text(runtime)


def test_old_turns_go_when_the_context_is_full(client, runtime, add_model):
    add_model("small", "small")
    messages = [
        {"role": "system", "content": "S"},
        *({"role": "user", "content": f"{letter * 20}"} for letter in "abcd"),
    ]
    client.post("/api/chat", {"model": "small", "messages": messages})
    text = prompt_text(runtime)
    assert turn("system", "S") in text
    assert turn("user", "d" * 20) in text
    assert "a" * 20 not in text


def test_error_after_the_first_chunk_is_the_last_line(client, runtime):
    runtime.script = Script(error=RuntimeError("nobody foresaw this"))
    lines = client.lines("/api/chat", {"model": "m", "messages": HI})
    assert lines[-1] == {"error": "internal server error"}
