"""OpenAI's Python client, unmodified, against a real daemon: tools, structured answers, responses, models."""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import httpx
import openai
import pytest
from pydantic import BaseModel

from tests.e2e.clients.tool_model import serving_tool_model

pytestmark = pytest.mark.e2e

MODEL = "maker/caller:135m"
ASK = [{"role": "user", "content": "How is the weather in Rome?"}]


class Weather(BaseModel):
    """Of a city."""

    city: Literal["Rome", "Oslo"]
    unit: Literal["C", "F"]


class Person(BaseModel):
    name: Literal["Bob", "Eve"]
    age: int


WEATHER = openai.pydantic_function_tool(Weather)
FLAT = {"type": "function", **WEATHER["function"]}


@pytest.fixture(scope="module")
def url(smollm2_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving_tool_model(smollm2_path, tmp_path_factory.mktemp("openai"), MODEL) as url:
        yield f"{url}/v1"


@pytest.fixture
def client(url: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=url, api_key="unused", max_retries=0) as client:
        yield client


def test_calls_are_forced_and_results_understood(client):
    request = {"model": MODEL, "tools": [WEATHER], "temperature": 0, "parallel_tool_calls": False}
    reply = client.chat.completions.parse(**request, messages=ASK, tool_choice="required").choices[0]
    assert reply.finish_reason == "tool_calls"
    (call,) = reply.message.tool_calls
    assert isinstance(call.function.parsed_arguments, Weather)
    with client.chat.completions.stream(
        **request, messages=ASK, tool_choice={"type": "function", "function": {"name": "Weather"}}
    ) as stream:
        streamed = stream.get_final_completion().choices[0]
    (same,) = streamed.message.tool_calls
    assert (same.function.name, same.function.arguments) == (call.function.name, call.function.arguments)
    result = {"role": "tool", "tool_call_id": call.id, "content": "It rains."}
    messages = [*ASK, reply.message, result]
    answer = client.chat.completions.create(
        **request, messages=messages, tool_choice="none", max_completion_tokens=16
    ).choices[0]
    assert answer.message.content
    assert answer.message.tool_calls is None


def test_answers_are_parsed(client):
    question = [{"role": "user", "content": "Bob is 42 years old."}]
    reply = client.chat.completions.parse(
        model=MODEL, messages=question, response_format=Person, temperature=1.5, seed=3, max_tokens=200
    )
    assert isinstance(reply.choices[0].message.parsed, Person)
    said = client.responses.parse(
        model=MODEL, input="Eve is 8 years old.", text_format=Person, temperature=1.5
    )
    assert isinstance(said.output_parsed, Person)


def test_bias_of_a_token(client, url):
    request = {"model": MODEL, "messages": ASK, "temperature": 0, "max_tokens": 1}
    first = client.chat.completions.create(**request, logprobs=True, top_logprobs=2).choices[0]
    likely, second = first.logprobs.content[0].top_logprobs
    body = {"model": MODEL, "prompt": ASK[0]["content"], "options": {"temperature": 0, "num_predict": 1}}
    drawn = httpx.post(f"{url}/../api/generate", json={**body, "stream": False}, timeout=60).json()
    assert drawn["response"] == likely.token
    biased = client.chat.completions.create(**request, logit_bias={str(drawn["context"][-1]): -100})
    assert biased.choices[0].message.content == second.token


def test_responses(client):
    request = {"model": MODEL, "instructions": "Be brief.", "temperature": 0, "max_output_tokens": 24}
    whole = client.responses.create(**request, input="Tell a story.")
    assert whole.output_text
    with client.responses.stream(**request, input="Tell a story.") as stream:
        deltas = [event.delta for event in stream if event.type == "response.output_text.delta"]
    assert len(deltas) > 3
    assert "".join(deltas) == whole.output_text
    assert whole.usage.input_tokens_details.cached_tokens >= 0


def test_a_round_trip_of_responses(client):
    request = {"model": MODEL, "tools": [FLAT], "temperature": 0, "store": False}
    said = [{"role": "user", "content": "How is the weather in Oslo?"}]
    with client.responses.stream(
        **request, input=said, tool_choice="required", parallel_tool_calls=False
    ) as stream:
        first = stream.get_final_response()
    (call,) = first.output
    assert (call.type, call.name) == ("function_call", "Weather")
    assert set(json.loads(call.arguments)) == {"city", "unit"}
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "It rains."}
    second = client.responses.create(
        **request, input=[*said, call, result], tool_choice="none", max_output_tokens=16
    )
    assert second.output_text


def dot(a: list[float], b: list[float]) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True))


def test_embeddings(client):
    texts = ["The sky is blue.", "The sky is blue today.", "def f(x): return x"]
    reply = client.embeddings.create(model=MODEL, input=texts)  # as base64
    first, second, third = (entry.embedding for entry in reply.data)
    assert dot(first, first) == pytest.approx(1, abs=1e-5)
    assert dot(first, second) > dot(first, third)
    same = client.embeddings.create(model=MODEL, input=texts[0], encoding_format="float", dimensions=8)
    (short,) = (entry.embedding for entry in same.data)
    scale = math.hypot(*first[:8])
    assert short == pytest.approx([value / scale for value in first[:8]], rel=1e-5)


def test_models_with_slashes(client):
    assert [model.id for model in client.models.list()] == [MODEL]
    assert client.models.retrieve(MODEL).owned_by == "maker"


def test_errors_are_of_the_clients_classes(client):
    with pytest.raises(openai.BadRequestError, match="max_tokens must not be more than"):
        client.chat.completions.create(model=MODEL, messages=ASK, max_tokens=10**15)
    with pytest.raises(openai.BadRequestError, match="audio is not supported"):
        client.audio.transcriptions.create(model=MODEL, file=("a.wav", b"RIFF" * 100_000))
    with pytest.raises(openai.BadRequestError, match="responses are not stored"):
        client.responses.create(model=MODEL, input="x", previous_response_id="resp_1")


def test_compressed_bodies(url):
    body = {"model": MODEL, "messages": ASK, "max_tokens": 1}
    reply = httpx.post(
        f"{url}/chat/completions",
        content=gzip.compress(json.dumps(body).encode()),
        headers={"Content-Encoding": "gzip"},
        timeout=60,
    )
    assert reply.json()["usage"]["completion_tokens"] == 1
