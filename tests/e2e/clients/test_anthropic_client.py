"""Anthropic's Python client, unmodified, against a real daemon: messages, streams, tools, answers in JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import anthropic
import pytest
from pydantic import BaseModel

from tests.e2e.clients.tool_model import serving_tool_model

pytestmark = pytest.mark.e2e

MODEL = "caller:135m"
GREEDY = {"temperature": 0}  # the client has no argument for it
ASK = [{"role": "user", "content": "How is the weather in Rome?"}]
WEATHER = {
    "name": "weather",
    "description": "Of today.",
    "input_schema": {
        "type": "object",
        "properties": {"city": {"enum": ["Rome", "Oslo"]}},
        "required": ["city"],
        "additionalProperties": False,
    },
}
CHOSEN = {
    "tools": [WEATHER],
    "tool_choice": {"type": "tool", "name": "weather", "disable_parallel_tool_use": True},
}


class Person(BaseModel):
    name: Literal["Bob", "Eve"]
    age: int


@pytest.fixture(scope="module")
def url(smollm2_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving_tool_model(smollm2_path, tmp_path_factory.mktemp("anthropic"), MODEL) as url:
        yield url


@pytest.fixture
def client(url: str) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=url, api_key="unused", max_retries=0) as client:
        yield client


def test_messages_whole_and_streamed_are_the_same(client):
    request = {"model": MODEL, "max_tokens": 16, "extra_body": GREEDY, "system": "Be brief.", "messages": ASK}
    whole = client.messages.create(**request)
    assert (whole.type, whole.role, whole.stop_reason) == ("message", "assistant", "max_tokens")
    assert whole._request_id.startswith("req_")
    counted = client.messages.count_tokens(model=MODEL, system="Be brief.", messages=ASK).input_tokens
    with client.messages.stream(**request) as stream:
        started = next(iter(stream)).message.usage
        streamed = stream.get_final_message()
    assert streamed.content[0].text == whole.content[0].text
    assert (started.input_tokens, started.output_tokens) == (counted, 0)
    usage = streamed.usage
    assert usage.input_tokens + usage.cache_read_input_tokens == counted
    assert usage.cache_read_input_tokens > 0
    assert usage.output_tokens == 16


def test_a_round_trip_of_a_tool(client):
    request = {"model": MODEL, "max_tokens": 64, "extra_body": GREEDY, **CHOSEN}
    whole = client.messages.create(**request, messages=ASK)
    assert whole.stop_reason == "tool_use"
    (call,) = (block for block in whole.content if block.type == "tool_use")
    assert call.input["city"] in ("Rome", "Oslo")
    with client.beta.messages.stream(**request, messages=ASK) as stream:
        fragments = [event.partial_json for event in stream if event.type == "input_json"]
        (same,) = (block for block in stream.get_final_message().content if block.type == "tool_use")
    assert json.loads("".join(fragments)) == same.input == call.input
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "It rains."}
    messages = [
        *ASK,
        {"role": "assistant", "content": whole.content},
        {"role": "user", "content": [result, {"type": "text", "text": "So?"}]},
    ]
    none = {**request, "tool_choice": {"type": "none"}}
    answer = client.messages.create(**none, messages=messages)
    assert [block.type for block in answer.content] == ["text"]


def test_answers_are_parsed(client):
    question = [{"role": "user", "content": "Bob is 42 years old."}]
    reply = client.messages.parse(model=MODEL, max_tokens=200, messages=question, output_format=Person)
    assert reply.stop_reason == "end_turn"
    assert isinstance(reply.parsed_output, Person)


def test_a_stop_sequence_is_named(client):
    request = {"model": MODEL, "max_tokens": 30, "extra_body": GREEDY, "messages": ASK}
    text = client.messages.create(**request).content[0].text
    stop = text[len(text) // 2 :][:5]
    cut = client.messages.create(**request, stop_sequences=["never", stop])
    assert (cut.stop_reason, cut.stop_sequence) == ("stop_sequence", stop)
    assert cut.content[0].text == text[: text.index(stop)]


def test_a_coding_agent_s_header_costs_no_prefix(client):
    def cached(cch: str) -> int:
        header = f"x-anthropic-billing-header: cc_version=2.1.77.a3f; cc_entrypoint=cli; cch={cch};"
        system = [{"type": "text", "text": text} for text in (header, "You are an agent. " * 20)]
        usage = client.beta.messages.create(
            model=MODEL,
            max_tokens=1,
            system=system,
            messages=ASK,
            thinking={"type": "adaptive"},
            output_config={"effort": "high"},
        ).usage
        assert usage.input_tokens > 0
        return usage.cache_read_input_tokens

    cached("00000")
    assert cached("1f3a9") > 80


def test_errors_are_of_the_client_s_classes_and_models_are_listed(client):
    with pytest.raises(anthropic.NotFoundError, match="model 'nobody' not found") as missing:
        client.messages.create(model="nobody", max_tokens=1, messages=ASK)
    assert missing.value.request_id.startswith("req_")
    with pytest.raises(anthropic.BadRequestError, match="must be positive"):
        client.messages.create(model=MODEL, max_tokens=0, messages=ASK)
    assert MODEL in [model.id for model in client.models.list()]
