"""POST /api/tokenize and /api/detokenize."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.native


def tokenize(client, **fields) -> list[int]:
    return client.post("/api/tokenize", {"model": "m", **fields}).json()["tokens"]


def test_texts_become_tokens_and_texts_again_and_the_model_is_not_loaded(client, runtime):
    text = "<|im_start|>hi ü😀"
    tokens = tokenize(client, content=text)
    assert client.post("/api/detokenize", {"model": "M", "tokens": tokens}).json() == {
        "model": "M",
        "content": text,
    }
    assert len(tokenize(client, content=text, parse_special=False)) > len(tokens)
    assert tokenize(client) == []
    assert (runtime.num_loads, runtime.text.num_open) == (0, 0)


@pytest.mark.parametrize(
    ("path", "body", "status", "error"),
    [
        ("tokenize", {"content": "x"}, 400, "model is required"),
        ("tokenize", {"model": "nobody"}, 404, "model 'nobody' not found"),
        ("tokenize", {"model": "m", "content": 5}, 400, "content"),
        ("detokenize", {"model": "m", "tokens": [-1]}, 400, "the model does not have token -1"),
        ("detokenize", {"model": "m", "tokens": [1, 10**30]}, 400, "token"),
        ("detokenize", {"model": "m", "tokens": ["a"]}, 400, "tokens"),
    ],
)
def test_what_is_wrong_is_said(client, path, body, status, error):
    response = client.post(f"/api/{path}", body)
    assert response.status_code == status
    assert error in response.json()["error"]
