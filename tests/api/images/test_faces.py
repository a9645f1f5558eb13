"""Images reach the engine from every face, in their places, and what is none is told so."""

from __future__ import annotations

import base64
import io
from typing import Any

import pytest
from PIL import Image

from puna.chat.images import IMAGE

pytestmark = pytest.mark.native


def png(colour: str) -> bytes:
    output = io.BytesIO()
    Image.new("RGB", (2, 2), colour).save(output, "PNG")
    return output.getvalue()


RED, BLUE = png("red"), png("blue")
RED64, BLUE64 = (base64.b64encode(image).decode() for image in (RED, BLUE))
HEAD, TAIL = "<|im_start|>user\n", "<|im_end|>\n<|im_start|>assistant\n"


@pytest.fixture(autouse=True)
def seer(add_model):
    add_model("seer", "seer", projector="never read here")


def data_url(content: str = RED64, kind: str = "image/png") -> str:
    return f"data:{kind};base64,{content}"


def openai_image(image_url: Any, kind: str = "image_url") -> dict[str, Any]:
    return {"type": kind, "image_url": image_url}


def anthropic_image(content: str = RED64, **source: str) -> dict[str, Any]:
    return {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": content} | source,
    }


CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"


def of_face(path: str, parts: list[Any]) -> dict[str, Any]:
    turn = [{"role": "user", "content": parts}]
    if path == RESPONSES:
        return {"model": "seer", "input": turn}
    return {"model": "seer", "messages": turn, "max_tokens": 5}


@pytest.mark.parametrize(
    ("path", "body", "pieces", "images"),
    [
        ("/api/generate", {"prompt": "hi", "images": [RED64, BLUE64]}, ["", "", "hi"], [RED, BLUE]),
        ("/api/generate", {"prompt": f"a{IMAGE}b [img]", "images": [RED64]}, ["ab ", ""], [RED]),
        (
            "/api/chat",
            {"messages": [{"role": "user", "content": "hi [img-0]", "images": [RED64]}]},
            ["", "hi [img-0]"],
            [RED],
        ),
        (
            CHAT,
            of_face(
                CHAT,
                [
                    {"type": "text", "text": f"One:{IMAGE}"},
                    openai_image({"url": data_url()}),
                    {"type": "text", "text": "two:"},
                    openai_image(data_url(BLUE64, "image/gif")),
                    {"type": "text", "text": "What?"},
                ],
            ),
            ["One:", "two:", "What?"],
            [RED, BLUE],
        ),
        (
            RESPONSES,
            of_face(
                RESPONSES, [openai_image(data_url(), "input_image"), {"type": "input_text", "text": "?"}]
            ),
            ["", "?"],
            [RED],
        ),
        (MESSAGES, of_face(MESSAGES, [{"type": "text", "text": "a"}, anthropic_image()]), ["a", ""], [RED]),
    ],
)
def test_images_stand_where_they_were_sent(client, runtime, path, body, pieces, images):
    response = client.post(path, {"model": "seer", "stream": False} | body)
    assert response.status_code == 200, response.text
    asked = runtime.requests[-1]
    assert asked.images == images
    assert asked.pieces == [HEAD + pieces[0], *pieces[1:-1], pieces[-1] + TAIL]
    assert runtime.resident_models["seer:latest"].sees


def test_results_of_tools_show_images(client, runtime):
    turns = [
        {"role": "user", "content": "look"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "shot", "input": {}}]},
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "1", "content": [anthropic_image()]}],
        },
    ]
    body = {"model": "seer", "messages": turns, "max_tokens": 5}
    assert client.post(MESSAGES, body).status_code == 200
    assert runtime.requests[-1].images == [RED]
    with_image = client.post(f"{MESSAGES}/count_tokens", body).json()["input_tokens"]
    assert with_image == len(runtime.requests[-1].prompt) + 768


def test_what_is_rendered_can_be_seen(client, runtime):
    body = {"model": "seer", "prompt": "hi", "images": [RED64], "_debug_render_only": True}
    line = client.post("/api/generate", body).json()
    assert line["_debug_info"] == {"rendered_template": f"{HEAD}[img-0]hi{TAIL}", "image_count": 1}
    assert runtime.requests == []


def test_requests_without_images_are_as_ever(client, runtime):
    client.post("/api/generate", {"model": "seer", "prompt": f"[img]{IMAGE}", "stream": False})
    assert runtime.requests[-1].pieces == []
    assert not runtime.resident_models["seer:latest"].sees


@pytest.mark.parametrize("model", ["m", "seer", "nobody"])
@pytest.mark.parametrize(
    ("path", "part"),
    [
        (CHAT, openai_image({"url": "https://example.com/x.png"})),
        (RESPONSES, openai_image("http://example.com/x.png", "input_image")),
        (MESSAGES, anthropic_image(type="url", url="https://example.com/x.png")),
    ],
)
def test_images_elsewhere_are_400_whatever_the_model(client, path, part, model):
    response = client.post(path, of_face(path, [part]) | {"model": model})
    assert response.status_code == 400
    assert response.json()["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"images": [base64.b64encode(b"hi").decode()]}, r"images[0]: it is no image in PNG"),
        ({"images": [RED64, RED64[:24]]}, "images[1]: it ends within its header"),
        ({"images": [data_url()]}, "base64"),
        ({"images": [RED64] * 65}, "64"),
        ({"images": [RED64], "raw": True, "prompt": "[img-0]" * 65}, "more than 64 images"),
        ({"images": [RED64], "suffix": "b"}, "with a suffix takes no images"),
    ],
)
def test_what_cannot_be_shown_is_400(client, body, text):
    response = client.post("/api/generate", {"model": "seer", "prompt": "a"} | body)
    assert (response.status_code, text in response.json()["error"]) == (400, True), response.text
