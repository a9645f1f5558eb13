"""Ollama's and OpenAI's own Python clients, unmodified, against a real daemon with a real model."""

from __future__ import annotations

import math
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import ollama
import openai
import pytest

import puna
from puna.registry import ModelName, Store
from puna.registry.creation.from_gguf import create_from_gguf
from tests.descriptions import SMOLLM2_WEIGHTS
from tests.tiny import TINY, write_tiny

pytestmark = pytest.mark.e2e

MODEL = "smollm2:135m"
GREEDY = {"temperature": 0, "num_predict": 16}
FRANCE = [504, 3575, 282, 4649, 314]
"""The capital of France is"""
CHECKOUT = Path(puna.__file__).parents[1]


@pytest.fixture(scope="module")
def url(smollm2_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of a daemon on a port of its own, whose store has one model."""
    directory = tmp_path_factory.mktemp("daemon")
    store = Store(directory / "models")
    digest = store.add_blob([smollm2_path.read_bytes()])
    create_from_gguf(store, ModelName.parse(MODEL), digest, SMOLLM2_WEIGHTS)
    log = directory / "log"
    environment = {
        **os.environ,
        "OLLAMA_HOST": "127.0.0.1:0",
        "OLLAMA_MODELS": str(store.root),
        "HOME": str(directory),
    }
    with log.open("wb") as output:
        daemon = subprocess.Popen(
            [sys.executable, "-m", "puna.cli", "serve"],
            env=environment,
            cwd=CHECKOUT,
            stderr=output,
            stdin=subprocess.DEVNULL,
        )
    try:
        yield f"http://{_address(daemon, log)}"
    finally:
        daemon.terminate()
        daemon.wait(timeout=30)


def _address(daemon: subprocess.Popen[bytes], log: Path) -> str:
    while (match := re.search(r"listening on (\S+)", log.read_text())) is None:
        assert daemon.poll() is None, log.read_text()
        time.sleep(0.05)
    return match[1]


@pytest.fixture
def client(url: str) -> ollama.Client:
    return ollama.Client(url)


@pytest.fixture
def openai_client(url: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0)


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def question(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def test_generate_says_the_same_in_one_piece_and_in_many(client):
    whole = client.generate(MODEL, "Why is the sky blue?", options=GREEDY)
    assert len(whole.response) > 20
    assert (whole.done, whole.done_reason, whole.eval_count) == (True, "length", 16)
    assert whole.prompt_eval_count > 10
    assert whole.total_duration >= whole.eval_duration > 0
    *pieces, final = client.generate(MODEL, "Why is the sky blue?", options=GREEDY, stream=True)
    assert "".join(piece.response for piece in pieces) == whole.response
    assert len(pieces) > 4
    assert (final.done, final.eval_count) == (True, 16)


def test_generate_continues_from_a_context(client):
    first = client.generate(MODEL, "My name is Alice.", options=GREEDY)
    second = client.generate(MODEL, "What is my name?", context=first.context, options=GREEDY)
    assert second.context[: len(first.context)] == first.context
    assert second.prompt_eval_count > len(first.context)


def test_embeddings_of_many_texts_and_of_one(client):
    texts = [f"{animal} is an animal" for animal in ("A cat", "A dog", "A horse")] * 40
    reply = client.embed(MODEL, texts)
    assert len(reply.embeddings) == len(texts)
    assert reply.embeddings[:3] == reply.embeddings[-3:]
    assert math.hypot(*reply.embeddings[0]) == pytest.approx(1)
    assert reply.prompt_eval_count > 4 * len(texts)
    (short,) = client.embed(MODEL, texts[0], dimensions=8).embeddings
    assert math.hypot(*short) == pytest.approx(1)
    (raw,) = [client.embeddings(MODEL, texts[0]).embedding]
    length = math.hypot(*raw)
    assert [value / length for value in raw] == pytest.approx(reply.embeddings[0], abs=1e-6)


def test_chat_of_several_turns(client):
    messages = [{"role": "system", "content": "Be brief."}, *question("My name is Alice.")]
    reply = client.chat(MODEL, messages, options=GREEDY)
    assert reply.message.role == "assistant"
    messages += [reply.message, *question("What is my name?")]
    *pieces, final = client.chat(MODEL, messages, options=GREEDY, stream=True)
    prompt = (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nMy name is Alice.<|im_end|>\n"
        f"<|im_start|>assistant\n{reply.message.content}<|im_end|>\n"
        "<|im_start|>user\nWhat is my name?<|im_end|>\n<|im_start|>assistant\n"
    )
    same = client.generate(MODEL, prompt, raw=True, options=GREEDY)
    assert "".join(piece.message.content for piece in pieces) == same.response
    assert (final.done, final.prompt_eval_count) == (True, same.prompt_eval_count)


def test_chat_ends_by_itself(client):
    reply = client.chat(MODEL, question("What is 2 + 2? Answer briefly."), options={"temperature": 0})
    assert reply.done_reason == "stop"
    assert "<|im_end|>" not in reply.message.content


def test_stop_strings_and_seeds(client):
    options = {"temperature": 0.8, "seed": 7, "num_predict": 30}
    first, second = (client.generate(MODEL, "Tell a story.", options=options).response for _ in range(2))
    assert first == second
    stop = first[len(first) // 2 :][:5]
    cut = client.generate(MODEL, "Tell a story.", options={**options, "stop": [stop]})
    assert cut.response == first[: first.index(stop)]
    assert cut.done_reason == "stop"


def test_logprobs(client):
    reply = client.generate(MODEL, "Tell a story.", options=GREEDY, logprobs=True, top_logprobs=3)
    assert len(reply.logprobs) == reply.eval_count == 16
    assert "".join(entry.token for entry in reply.logprobs) == reply.response
    for entry in reply.logprobs:
        assert entry.logprob <= 0
        assert len(entry.top_logprobs) == 3
        assert entry.top_logprobs[0].token == entry.token  # greedy


def test_list_and_show(client):
    (listed,) = (model for model in client.list().models if model.model == MODEL)
    assert listed.size > 50_000_000
    assert (listed.details.family, listed.details.quantization_level) == ("llama", "Q4_1")
    shown = client.show(MODEL)
    assert shown.modelinfo["general.architecture"] == "llama"
    assert "completion" in shown.capabilities
    assert "<|im_start|>" in shown.template


def test_load_and_unload(client):
    assert client.generate(MODEL).done_reason == "load"
    (loaded,) = client.ps().models
    assert (loaded.model, loaded.context_length) == (MODEL, 8192)
    assert client.generate(MODEL, keep_alive=0).done_reason == "unload"
    assert not client.ps().models


def test_client_that_goes_away_leaves_nothing_running(client):
    endless = {"temperature": 0.8, "num_predict": -1}
    stream = client.generate(MODEL, "Count to a million.", options=endless, stream=True)
    next(stream)
    stream.close()
    client.generate(MODEL, keep_alive=0)  # as soon as nobody uses it
    eventually(lambda: not client.ps().models)


def test_create_copy_and_delete(client, tmp_path):
    path = write_tiny(tmp_path / "tiny.gguf", TINY["llama"])
    digest = client.create_blob(path)
    assert client.create("tiny", files={"tiny.gguf": digest}).status == "success"
    client.copy("tiny", "twin")
    assert client.delete("tiny").status == "success"
    assert client.generate("twin", "hi", raw=True, options=GREEDY).eval_count == 16
    client.delete("twin")
    assert [model.model for model in client.list().models] == [MODEL]


def test_errors_have_status_and_text(client, tmp_path):
    with pytest.raises(ollama.ResponseError, match="model 'nobody' not found") as raised:
        client.chat("nobody", question("hi"))
    assert raised.value.status_code == 404
    path = tmp_path / "bad.gguf"
    path.write_bytes(b"GGUF" + b"\xff" * 100)
    digest = client.create_blob(path)
    with pytest.raises(ollama.ResponseError):
        client.create("bad", files={"bad.gguf": digest})
    with pytest.raises(ollama.ResponseError, match="pull model manifest: "):
        client.pull("nobody/has:this")


def test_openai_chat(client, openai_client):
    messages = question("Why is the sky blue?")
    whole = openai_client.chat.completions.create(
        model=MODEL, messages=messages, temperature=0, max_tokens=16
    )
    (choice,) = whole.choices
    assert choice.finish_reason == "length"
    assert whole.usage.completion_tokens == 16
    same = client.chat(MODEL, messages, options={**GREEDY, "top_p": 1.0})
    assert choice.message.content == same.message.content
    *chunks, usage = openai_client.chat.completions.create(
        model=MODEL,
        messages=messages,
        temperature=0,
        max_tokens=16,
        stream=True,
        stream_options={"include_usage": True},
    )
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert text == choice.message.content
    assert usage.usage.completion_tokens == whole.usage.completion_tokens
    assert usage.usage.prompt_tokens == whole.usage.prompt_tokens


def test_openai_completion(openai_client):
    whole = openai_client.completions.create(model=MODEL, prompt="Hi!", temperature=0, max_tokens=8)
    stream = openai_client.completions.create(
        model=MODEL, prompt="Hi!", temperature=0, max_tokens=8, stream=True
    )
    assert whole.choices[0].text
    assert "".join(chunk.choices[0].text for chunk in stream) == whole.choices[0].text


def test_openai_replies_with_seeds_in_a_row(openai_client):
    request = {"model": MODEL, "messages": question("Tell a story."), "max_tokens": 12}
    alone = [
        openai_client.chat.completions.create(**request, seed=seed).choices[0].message.content
        for seed in (5, 6, 7)
    ]
    whole = openai_client.chat.completions.create(**request, seed=5, n=3)
    assert [choice.index for choice in whole.choices] == [0, 1, 2]
    assert [choice.message.content for choice in whole.choices] == alone
    assert len(set(alone)) == 3
    assert whole.usage.completion_tokens == 36
    assert whole.usage.prompt_tokens_details.cached_tokens == whole.usage.prompt_tokens - 1
    texts = ["", "", ""]
    for chunk in openai_client.chat.completions.create(**request, seed=5, n=3, stream=True):
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
    assert texts == alone


def test_openai_prompts_best_of_and_logprobs(openai_client):
    request = {"model": MODEL, "prompt": ["Tell a story.", FRANCE], "max_tokens": 8, "seed": 5}
    all_four = openai_client.completions.create(**request, n=2, logprobs=2)
    means = [sum(c.logprobs.token_logprobs) / len(c.logprobs.token_logprobs) for c in all_four.choices]
    for choice in all_four.choices:
        assert "".join(choice.logprobs.tokens) == choice.text
        pieces = zip(choice.logprobs.tokens, choice.logprobs.text_offset, strict=True)
        assert all(choice.text.startswith(token, offset) for token, offset in pieces)
    best = openai_client.completions.create(**request, best_of=2)
    expected = [all_four.choices[first + (means[first + 1] > means[first])].text for first in (0, 2)]
    assert [choice.text for choice in best.choices] == expected
    assert best.usage.completion_tokens == all_four.usage.completion_tokens


def test_prompts_of_another_salt_are_not_found(openai_client):
    request = {"model": MODEL, "messages": question("What is a tenant? " * 20), "max_tokens": 1}

    def cached(**extra: object) -> int:
        usage = openai_client.chat.completions.create(**request, extra_body=extra).usage
        return usage.prompt_tokens_details.cached_tokens

    assert cached(cache_salt="a") < 20  # nothing but the system prompt may be common
    assert cached(cache_salt="a") > 60
    assert cached(cache_salt="b") < 20
    assert cached(cache_salt="b", cache_prompt=False) == 0


def test_context_shifts_unless_told_not_to(client, url):
    options = {**GREEDY, "num_ctx": 64, "num_predict": 150}
    goes_on = client.generate(MODEL, "one two three four", raw=True, options=options)
    assert (goes_on.done_reason, goes_on.eval_count) == ("length", 150)
    body = {"model": MODEL, "prompt": "one two three four", "raw": True, "stream": False, "options": options}
    stops = httpx.post(f"{url}/api/generate", json={**body, "shift": False}, timeout=60).json()
    assert stops["done_reason"] == "length"
    assert stops["prompt_eval_count"] + stops["eval_count"] == 64
    assert goes_on.response.startswith(stops["response"])


def test_openai_models_and_errors(openai_client):
    assert MODEL in [model.id for model in openai_client.models.list()]
    assert openai_client.models.retrieve(MODEL).owned_by == "library"
    with pytest.raises(openai.NotFoundError, match="model 'nobody' not found"):
        openai_client.chat.completions.create(model="nobody", messages=question("hi"))
    with pytest.raises(openai.BadRequestError, match="too short"):
        openai_client.chat.completions.create(model=MODEL, messages=[])
