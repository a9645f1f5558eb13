"""OpenAI's embeddings."""

from __future__ import annotations

import math
from array import array
from base64 import b64decode

import pytest

pytestmark = pytest.mark.unit

URL = "/v1/embeddings"


def unit(*values: float):
    length = math.hypot(*values)
    return pytest.approx([value / length for value in values])


def test_one_text(client):
    reply = client.post(URL, {"model": "M", "input": "ab"}).json()
    (entry,) = reply.pop("data")
    assert (entry["object"], entry["index"], entry["embedding"]) == ("embedding", 0, unit(3, 2, 4, 0))
    assert reply == {"object": "list", "model": "M", "usage": {"prompt_tokens": 2, "total_tokens": 2}}


def test_base64_is_float32(client):
    body = {"model": "m", "input": ["ab", "c"], "encoding_format": "Base64", "dimensions": 2}
    data = client.post(URL, body).json()["data"]
    vectors = [list(array("f", b64decode(entry["embedding"]))) for entry in data]
    assert vectors == [unit(3, 2), unit(3, 1)]
    assert [entry["index"] for entry in data] == [0, 1]


def test_extensions_reach_the_engine(client, runtime):
    assert client.post(URL, {"model": "m", "input": "a", "cache_salt": "s", "priority": 2}).status_code == 200
    assert (runtime.requests[-1].cache_salt, runtime.requests[-1].priority) == ("s", 2)


@pytest.mark.parametrize(
    ("fields", "status", "text"),
    [
        ({"input": None}, 400, "invalid input"),
        ({"input": []}, 400, "invalid input"),
        ({"input": [1, 2]}, 400, "invalid input type"),
        ({"input": [[1, 2]]}, 400, "invalid input type"),
        ({"input": {"a": 1}}, 400, "invalid input type"),
        ({"encoding_format": "int8"}, 400, "Supported values: ['float', 'base64']."),
        ({"dimensions": 0}, 400, "dimensions must be at least 1"),
        ({"session": "s"}, 400, "no session"),
        ({"model": "none"}, 404, 'model "none" not found'),
        ({"model": ""}, 404, "model '' not found"),
    ],
)
def test_errors_have_openais_shape(client, fields, status, text):
    response = client.post(URL, {"model": "m", "input": "a", **fields})
    assert (response.status_code, text in response.json()["error"]["message"]) == (status, True)
