"""POST /api/embed and /api/embeddings."""

from __future__ import annotations

import math
from array import array
from typing import Any

import pytest

from puna.api.pooled import embedding
from tests.api.conftest import AddModel, Client
from tests.api.fake_runtime import FakeRuntime

pytestmark = pytest.mark.unit


def embed(client: Client, text: Any, **fields: Any) -> dict:
    response = client.post("/api/embed", {"model": "m", "input": text, **fields})
    assert response.status_code == 200, response.text
    return response.json()


def unit(*values: float) -> Any:
    length = math.hypot(*values)
    return pytest.approx([value / length for value in values])


def test_embeds_texts_in_their_order(client: Client, runtime: FakeRuntime) -> None:
    reply = embed(client, ["abc", "a", "ab"] * 400)
    assert reply["embeddings"][:2] == [unit(3, 3, 4, 0), unit(3, 1, 4, 0)]
    assert len(reply["embeddings"]) == 1200
    assert reply["prompt_eval_count"] == 400 * (3 + 1 + 2)
    assert reply["model"] == "m"
    assert 0 < reply["load_duration"] <= reply["total_duration"]
    assert {(request.pooling, request.cache_to_disk) for request in runtime.requests} == {("last", False)}
    assert runtime.num_held == runtime.num_generating == 0


def test_one_text_needs_no_list(client: Client) -> None:
    assert embed(client, "ab")["embeddings"] == [unit(3, 2, 4, 0)]


@pytest.mark.parametrize("nothing", [None, "", []])
def test_without_texts_only_loads(client: Client, runtime: FakeRuntime, nothing: Any) -> None:
    assert embed(client, nothing) == {"model": "m", "embeddings": []}
    assert runtime.num_loads == 1


def test_dimensions_shorten_and_normalise_again(client: Client) -> None:
    assert embed(client, "ab", dimensions=2)["embeddings"] == [unit(3, 2)]
    assert embed(client, "ab", dimensions=9)["embeddings"] == [unit(3, 2, 4, 0)]


def test_what_does_not_fit_is_cut_off(client: Client, runtime: FakeRuntime) -> None:
    options = {"num_ctx": 8}
    embed(client, ["x" * 50, "y"], options=options)
    assert sorted(len(request.prompt) for request in runtime.requests) == [1, 8]
    refused = client.post(
        "/api/embed", {"model": "m", "input": "x" * 50, "truncate": False, "options": options}
    )
    assert (refused.status_code, refused.json()) == (
        400,
        {"error": "the input length exceeds the context length"},
    )


@pytest.mark.parametrize("wrong", [7, {"a": 1}, ["a", 1], [["a"]], True])
def test_only_texts_are_embedded(client: Client, wrong: Any) -> None:
    for model in ("m", "unknown"):
        response = client.post("/api/embed", {"model": model, "input": wrong})
        assert (response.status_code, response.json()) == (400, {"error": "invalid input type"})


@pytest.mark.parametrize(
    ("path", "model", "status", "error"),
    [
        ("/api/embed", "", 404, "model '' not found"),
        ("/api/embed", "x", 404, 'model "x" not found, try pulling it first'),
        ("/api/embeddings", "", 400, "model is required"),
        ("/api/embeddings", "x", 404, 'model "x" not found, try pulling it first'),
    ],
)
def test_models_that_are_not_there(client: Client, path: str, model: str, status: int, error: str) -> None:
    response = client.post(path, {"model": model, "input": "a", "prompt": "a"})
    assert (response.status_code, response.json()) == (status, {"error": error})


def test_one_embedding_as_the_model_gives_it(client: Client) -> None:
    response = client.post("/api/embeddings", {"model": "m", "prompt": "ab"})
    assert response.json() == {"embedding": [3, 2, 4, 0]}
    assert client.post("/api/embeddings", {"model": "m"}).json() == {"embedding": []}


def test_what_is_no_number_is_an_error(client: Client, runtime: FakeRuntime) -> None:
    runtime.embedding = array("f", [math.nan, 0, 0, 0])
    response = client.post("/api/embed", {"model": "m", "input": ["a"] * 1000})
    assert (response.status_code, response.json()) == (
        400,
        {"error": "embedding contains NaN or Inf values"},
    )
    assert runtime.num_generating == 0


def test_models_that_rank_have_no_embeddings(client: Client, runtime: FakeRuntime) -> None:
    runtime.pooling = "rank"
    response = client.post("/api/embed", {"model": "m", "input": "a"})
    assert (response.status_code, response.json()) == (400, {"error": '"m" does not support embeddings'})


def test_a_reply_has_a_largest_size(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedding, "_MOST_VALUES", 8)
    assert len(embed(client, ["a"] * 2)["embeddings"]) == 2
    response = client.post("/api/embed", {"model": "m", "input": ["a"] * 3})
    assert (response.status_code, response.json()) == (
        400,
        {"error": "a request to this model may have 2 inputs at most"},
    )


def test_the_model_may_add_nothing_to_an_empty_text(client: Client) -> None:
    assert client.post("/api/embed", {"model": "m", "input": ["a", ""]}).status_code == 400


def test_keep_alive_and_options(client: Client, runtime: FakeRuntime, add_model: AddModel) -> None:
    add_model("small", "small", params={"num_ctx": 16})
    embed(client, "a", model="small", keep_alive="10m", priority=3)
    loaded = runtime.resident_models["small:latest"]
    assert (loaded.num_ctx, loaded.keep_alive) == (16, 600)
    assert runtime.requests[-1].priority == 3
    assert client.post("/api/embed", {"model": "m", "input": "a", "keep_alive": "x"}).status_code == 400
    assert client.post("/api/embed", {"model": "m", "options": {"num_ctx": "x"}}).status_code == 500
