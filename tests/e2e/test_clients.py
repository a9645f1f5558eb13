"""Ollama's and OpenAI's own Python clients, unmodified, against a real daemon with a real model."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import ollama
import openai
import pytest

import puna
from puna.registry import ModelName, Store
from puna.registry.create import create_from_gguf
from tests.tiny import TINY, write_tiny

pytestmark = pytest.mark.e2e

MODEL = "smollm2:135m"
GREEDY = {"temperature": 0, "num_predict": 16}
CHECKOUT = Path(puna.__file__).parents[1]


@pytest.fixture(scope="module")
def url(smollm2_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of a daemon on a port of its own, whose store has one model."""
    directory = tmp_path_factory.mktemp("daemon")
    store = Store(directory / "models")
    digest = store.add_blob([smollm2_path.read_bytes()])
    create_from_gguf(store, ModelName.parse(MODEL), digest)
    log = directory / "log"
    environment = {**os.environ, "OLLAMA_HOST": "127.0.0.1:0", "OLLAMA_MODELS": str(store.root)}
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
    with pytest.raises(ollama.ResponseError, match="file does not exist"):
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
    assert usage.usage == whole.usage


def test_openai_completion(openai_client):
    whole = openai_client.completions.create(model=MODEL, prompt="Hi!", temperature=0, max_tokens=8)
    stream = openai_client.completions.create(
        model=MODEL, prompt="Hi!", temperature=0, max_tokens=8, stream=True
    )
    assert whole.choices[0].text
    assert "".join(chunk.choices[0].text for chunk in stream) == whole.choices[0].text


def test_openai_models_and_errors(openai_client):
    assert MODEL in [model.id for model in openai_client.models.list()]
    assert openai_client.models.retrieve(MODEL).owned_by == "library"
    with pytest.raises(openai.NotFoundError, match="model 'nobody' not found"):
        openai_client.chat.completions.create(model="nobody", messages=question("hi"))
    with pytest.raises(openai.BadRequestError, match="too short"):
        openai_client.chat.completions.create(model=MODEL, messages=[])
