"""OpenAI's models, and what none of them can do."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from puna.registry import ModelName

pytestmark = pytest.mark.native


def test_models(client, add_model):
    add_model("someone/n")
    listed = client.get("/v1/models?limit=1&after_id=x").json()
    assert (listed["object"], listed["has_more"]) == ("list", False)
    owners = {entry["id"]: entry["owned_by"] for entry in listed["data"]}
    assert owners == {"m:latest": "library", "someone/n:latest": "someone"}
    assert [listed["first_id"], listed["last_id"]] == list(owners)
    for entry in listed["data"]:
        assert (entry["object"], entry["type"], entry["display_name"]) == ("model", "model", entry["id"])
        created = datetime.fromisoformat(entry["created_at"])
        assert (int(created.timestamp()), created.tzinfo) == (entry["created"], UTC)


def test_no_models(client, runtime):
    runtime.store.delete(ModelName.parse("m"))
    listed = client.get("/v1/models").json()
    assert (listed["data"], listed["first_id"], listed["last_id"]) == ([], None, None)


def test_one_model(client, add_model):
    add_model("someone/n")
    assert client.get("/v1/models/M").json()["id"] == "M"
    assert client.get("/v1/models/someone/n").json()["owned_by"] == "someone"
    for name in ("none", "someone/none"):
        response = client.get(f"/v1/models/{name}")
        assert (response.status_code, response.json()["error"]["type"]) == (404, "not_found_error")


@pytest.mark.parametrize("path", ["audio/transcriptions", "audio/speech", "images/generations"])
def test_what_no_model_can_do_is_400(client, path):
    response = client.post(f"/v1/{path}", b"--x", **{"content-type": "multipart/form-data; boundary=x"})
    assert (response.status_code, response.json()["error"]["type"]) == (400, "invalid_request_error")
    assert "not supported" in response.json()["error"]["message"]


def test_unknown_paths_are_404(client):
    response = client.post("/v1/moderations", {"input": "x"})
    assert (response.status_code, response.json()["error"]["type"]) == (404, "not_found_error")
