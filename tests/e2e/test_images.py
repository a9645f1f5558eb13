"""A tiny model sees by way of llama.cpp's server: pixels decide what it says."""

from __future__ import annotations

import base64
import io
import os
import signal
import struct
import subprocess
import threading
import zlib
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from PIL import Image

from tests.e2e.launching import PUNA, address_of, launch
from tests.tiny import TINY, write_tiny
from tests.tiny.projector import NUM_TOKENS, write_projector
from tests.tiny.towers import write_seeing

pytestmark = pytest.mark.e2e

_OPTIONS = {"num_predict": 4, "temperature": 0, "num_ctx": 128}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    home = tmp_path_factory.mktemp("images")
    (home / "models").mkdir()
    variables = {"PUNA_KV_DISK": "0", "PUNA_NUM_THREADS": "1", "PUNA_ENGINE": "auto", "PATH": "/usr/bin:/bin"}
    daemon = launch(home / "models", **variables)
    address = address_of(daemon)
    threading.Thread(target=daemon.stderr.read, daemon=True).start()  # it must not wait for a reader
    write_tiny(home / "m.gguf", TINY["llama"])
    write_projector(home / "mmproj.gguf")
    (home / "tower").mkdir()
    _, published = write_seeing(home / "tower", "gemma3")
    for name, text in (
        ("seer", "FROM ./m.gguf\nFROM ./mmproj.gguf\n"),
        ("published", f"FROM {published}\n"),
    ):
        (home / "Modelfile").write_text(text)
        command = [*PUNA, "create", name, "-f", str(home / "Modelfile")]
        subprocess.run(command, env={**os.environ, "OLLAMA_HOST": address}, check=True, timeout=60)
    with httpx.Client(base_url=f"http://{address}", timeout=60) as client:
        yield client
    daemon.send_signal(signal.SIGTERM)
    daemon.communicate(timeout=30)


def image(colour: str, form: str = "PNG") -> str:
    output = io.BytesIO()
    Image.new("RGB", (20, 20), colour).save(output, form, **({"lossless": True} if form == "WEBP" else {}))
    return base64.b64encode(output.getvalue()).decode()


def generate(client: httpx.Client, *images: str, **fields: Any) -> dict[str, Any]:
    body = {
        "model": "seer",
        "prompt": "ab",
        "raw": True,
        "stream": False,
        "options": _OPTIONS,
        "logprobs": True,
    }
    response = client.post("/api/generate", json={**body, "images": images, **fields})
    assert response.status_code == 200, response.text
    return response.json()


def said(reply: dict[str, Any]) -> list[tuple[str, float]]:
    return [(each["token"], round(each["logprob"], 3)) for each in reply["logprobs"]]


def engine_of(client: httpx.Client) -> str:
    (model,) = client.get("/api/ps").json()["models"]
    return model["engine"]


def test_pixels_decide_what_is_said(client: httpx.Client):
    blind = generate(client)
    assert engine_of(client) == "native"
    red, blue = generate(client, image("red")), generate(client, image("blue"))
    assert engine_of(client) == "llamacpp"
    assert said(red) != said(blue)
    assert red["prompt_eval_count"] == blind["prompt_eval_count"] + NUM_TOKENS
    for form in ("GIF", "BMP", "WEBP"):
        assert said(generate(client, image("red", form))) == said(red)
    assert said(generate(client))[0][0] == said(blind)[0][0]  # texts are served there, too


def test_a_text_that_is_being_written_ends_before_the_model_begins_to_see(client: httpx.Client):
    client.post("/api/generate", json={"model": "seer", "keep_alive": 0})
    never = dict.fromkeys(("267", "269"), -100)  # ends of texts and turns
    long = {"num_predict": 500, "temperature": 9, "top_k": 0, "top_p": 1, "logit_bias": never}
    body = {"model": "seer", "prompt": "ab", "raw": True, "options": long}
    with client.stream("POST", "/api/generate", json=body) as reply:
        lines = reply.iter_lines()
        next(lines)
        assert engine_of(client) == "native"
        generate(client, image("red"))
        assert engine_of(client) == "llamacpp"
        assert '"eval_count":500,' in list(lines)[-1]


def test_order_decides_as_well(client: httpx.Client):
    colours = [image("red"), image("blue")]
    there, back = (generate(client, *images) for images in (colours, colours[::-1]))
    assert said(there) != said(back)
    assert said(generate(client, *colours, prompt="[img-1][img-0]ab")) == said(back)


def test_every_face_sees(client: httpx.Client):
    url = {"url": f"data:image/png;base64,{image('red')}"}
    source = {"type": "base64", "media_type": "image/png", "data": image("red")}
    body = {"model": "seer", "max_tokens": 3, "temperature": 0}
    turn = {"role": "user", "content": "hi", "images": [image("red")]}
    ollama = client.post(
        "/api/chat", json={"model": "seer", "messages": [turn], "stream": False, "options": _OPTIONS}
    )
    parts = [{"type": "image_url", "image_url": url}, {"type": "text", "text": "hi"}]
    openai = client.post(
        "/v1/chat/completions", json={**body, "messages": [{"role": "user", "content": parts}]}
    )
    blocks = [{"type": "image", "source": source}, {"type": "text", "text": "hi"}]
    anthropic = client.post("/v1/messages", json={**body, "messages": [{"role": "user", "content": blocks}]})
    usage = anthropic.json()["usage"]
    assert (
        ollama.json()["prompt_eval_count"]
        == openai.json()["usage"]["prompt_tokens"]
        == usage["input_tokens"] + usage["cache_read_input_tokens"]
    )


def test_what_does_not_fit_or_cannot_be_decoded_is_400(client: httpx.Client):
    body = {"model": "seer", "prompt": "ab", "raw": True, "images": [image("red")] * 3}
    response = client.post("/api/generate", json={**body, "options": {"num_ctx": 12}})
    assert (response.status_code, "14 tokens with its images" in response.text) == (400, True), response.text
    nothing = zlib.compress(b"")
    data = (
        struct.pack(">I4s", len(nothing), b"IDAT") + nothing + bytes(4) + struct.pack(">I4sI", 0, b"IEND", 0)
    )
    broken = base64.b64encode(base64.b64decode(image("red"))[:33] + data).decode()
    response = client.post("/api/generate", json={**body, "images": [broken]})
    assert (response.status_code, "Failed to load image" in response.text) == (400, True), response.text
    assert generate(client, image("red"))["done"]


def test_a_reply_ends_with_the_context(client: httpx.Client):
    options = {**_OPTIONS, "num_ctx": 12, "num_predict": 100}
    reply = generate(client, image("red"), options=options)
    assert (reply["done_reason"], reply["prompt_eval_count"] + reply["eval_count"]) == ("length", 12)


def test_a_model_whose_tower_is_in_its_own_file_sees_also_when_its_server_was_killed(client: httpx.Client):
    red, blue = (generate(client, image(colour), model="published") for colour in ("red", "blue"))
    assert red["logprobs"] != blue["logprobs"]
    processes = client.get("/api/ps").json()["processes"]
    os.kill(next(each["pid"] for each in processes if each["name"] == "llama.cpp"), signal.SIGKILL)
    assert said(generate(client, image("blue"), model="published")) == said(blue)
