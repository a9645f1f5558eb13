"""Rankings of documents."""

from __future__ import annotations

import math

import pytest

pytestmark = pytest.mark.unit

PATHS = ("/v1/rerank", "/v2/rerank", "/v1/reranking", "/rerank", "/reranking")
BODY = {"model": "m", "query": "which", "documents": ["a", {"text": "abc"}, "ab"]}


@pytest.fixture(autouse=True)
def ranks(runtime):
    runtime.pooling = "rank"


@pytest.mark.parametrize("path", PATHS)
def test_most_relevant_documents_come_first(client, runtime, path):
    reply = client.post(path, BODY).json()
    results = reply.pop("results")
    assert [result["index"] for result in results] == [1, 2, 0]
    logits = [8.0, 7.0, 6.0]
    scores = (
        logits
        if path in ("/rerank", "/reranking", "/v1/reranking")
        else [1 / (1 + math.exp(-x)) for x in logits]
    )
    assert [result["relevance_score"] for result in results] == pytest.approx(scores)
    assert not any("document" in result for result in results)
    assert reply == {"object": "list", "model": "m", "usage": {"prompt_tokens": 21, "total_tokens": 21}}
    assert {request.pooling for request in runtime.requests} == {"rank"}
    assert runtime.num_held == runtime.num_generating == 0


def test_a_few_documents_with_their_texts(client):
    body = BODY | {"top_n": 2, "return_documents": True}
    results = client.post("/v1/rerank", body).json()["results"]
    assert [result["document"] for result in results] == [{"text": "abc"}, {"text": "ab"}]
    assert len(client.post("/v1/rerank", BODY | {"top_n": 99}).json()["results"]) == 3


def test_first_of_several_scores_is_a_probability_already(client, runtime):
    runtime.scores = [0.25, 0]
    (result,) = client.post("/v1/rerank", BODY | {"top_n": 1}).json()["results"]
    assert result["relevance_score"] == 0.25


def test_extreme_scores(client, runtime):
    for score, expected in ((-1e30, 0), (1e30, 1)):
        runtime.scores = [score]
        (result,) = client.post("/v1/rerank", BODY | {"top_n": 1}).json()["results"]
        assert result["relevance_score"] == expected
    runtime.scores = [math.nan]
    assert client.post("/v1/rerank", BODY).status_code == 400


def test_documents_are_cut_where_they_do_not_fit(client, runtime, add_model):
    add_model("small", "small")
    client.post("/v1/rerank", BODY | {"model": "small", "documents": ["x" * 500]})
    assert len(runtime.requests[-1].prompt) == 64


@pytest.mark.parametrize(
    ("fields", "status", "text"),
    [
        ({"query": None}, 400, '"query" must be provided'),
        ({"query": 7}, 400, '"query" must be a string'),
        ({"documents": None}, 400, '"documents" must be a non-empty string array'),
        ({"documents": []}, 400, '"documents" must be a non-empty string array'),
        ({"documents": "a"}, 400, '"documents" must be a non-empty string array'),
        ({"documents": ["a", 7]}, 400, '"documents" must be a non-empty string array'),
        ({"documents": [{"title": "a"}]}, 400, '"documents" must be a non-empty string array'),
        ({"documents": ["a"] * 20_000}, 400, '"documents" may be 16384 at most'),
        ({"top_n": 0}, 400, '"top_n" must be at least 1'),
        ({"query": "x" * 5000, "model": "small"}, 400, "exceeds maximum context length"),
        ({"session": "s", "documents": ["a"]}, 400, "no session"),
        ({"model": "none"}, 404, 'model "none" not found'),
        ({"model": ""}, 404, "model '' not found"),
    ],
)
def test_errors_have_openais_shape(client, add_model, fields, status, text):
    add_model("small", "small")
    response = client.post("/v1/rerank", BODY | fields)
    assert (response.status_code, text in response.json()["error"]["message"]) == (status, True), (
        response.text
    )


def test_models_that_do_the_other_thing(client, runtime):
    embedded = client.post("/v1/embeddings", {"model": "m", "input": "a"})
    runtime.pooling = "last"
    ranked = client.post("/v1/rerank", BODY)
    for response, what in ((embedded, "embeddings"), (ranked, "reranking")):
        assert response.status_code == 400
        assert response.json()["error"]["message"] == f'"m" does not support {what}'
