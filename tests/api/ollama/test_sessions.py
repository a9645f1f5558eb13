"""/api/sessions over a real manager and files; the worker's memory is a table."""

from __future__ import annotations

import pytest

from puna.registry import ModelName
from tests.daemon.fake_sessions import SAVED_AT

pytestmark = pytest.mark.native

BODY = {"model": "m", "name": "a"}


@pytest.fixture
def model_id(client, runtime) -> str:
    assert client  # which has stored the model
    return runtime.store.find(ModelName.parse("m")).weights_id


@pytest.fixture
def session(runtime, model_id) -> None:
    """One pinned session: `a` of `m`."""
    runtime.worker_sessions.pinned[model_id, "a"] = 40


def listed(client) -> list[dict]:
    response = client.get("/api/sessions")
    assert response.status_code == 200
    return response.json()["sessions"]


PINNED = {
    "name": "a",
    "model": "m:latest",
    "tokens": 40,
    "size": 3 * 64,
    "pinned": True,
    "saved": False,
    "saved_at": None,
}
SAVED_TIME = SAVED_AT.isoformat().replace("+00:00", "Z")


def test_none(client):
    assert listed(client) == []


@pytest.mark.usefixtures("session")
def test_a_session_is_saved_and_listed(client, runtime):
    assert listed(client) == [PINNED]
    response = client.post("/api/sessions/save", BODY)
    assert response.status_code == 200
    saved = PINNED | {"saved": True, "saved_at": SAVED_TIME}
    assert response.json() == saved
    assert listed(client) == [saved]
    blocks = runtime.settings.sessions.glob("*/*.kv")
    runtime.worker_sessions.pinned.clear()  # as by a restart
    size = sum(path.stat().st_size for path in blocks)
    assert listed(client) == [saved | {"pinned": False, "size": size}]


@pytest.mark.usefixtures("session")
def test_loading_brings_the_model_along(client, runtime):
    client.post("/api/sessions/save", BODY)
    runtime.worker_sessions.pinned.clear()
    response = client.post("/api/sessions/load", BODY)
    assert response.status_code == 200
    assert response.json() == PINNED | {"saved": True, "saved_at": SAVED_TIME}
    assert list(runtime.resident_models) == ["m:latest"]
    assert runtime.num_held == 0


def test_what_lost_its_memory_is_listed_all_the_same(client, runtime, model_id):
    runtime.worker_sessions.pinned[model_id, "a"] = 0
    assert listed(client) == [PINNED | {"tokens": 0, "size": 0, "pinned": False}]


@pytest.mark.usefixtures("session")
def test_deleting_takes_memory_and_file(client, runtime):
    client.post("/api/sessions/save", BODY)
    assert client.request("DELETE", "/api/sessions", BODY).status_code == 200
    assert listed(client) == []
    assert list(runtime.settings.sessions.iterdir()) == []
    response = client.request("DELETE", "/api/sessions", BODY)
    assert (response.status_code, response.json()) == (404, {"error": "session 'a' of m not found"})


@pytest.mark.usefixtures("session")
def test_sessions_of_a_deleted_model_are_found_by_its_digest(client, model_id):
    client.post("/api/sessions/save", BODY)
    client.request("DELETE", "/api/delete", {"model": "m"})
    [entry] = listed(client)
    assert entry["model"] == model_id.removeprefix("sha256-")[:12]
    response = client.request("DELETE", "/api/sessions", {"model": entry["model"], "name": "a"})
    assert response.status_code == 200
    assert listed(client) == []


@pytest.mark.usefixtures("session")
def test_sessions_of_two_models_do_not_meet(client, add_model):
    add_model("thinker", "thinker")
    client.post("/api/sessions/save", BODY)
    response = client.post("/api/sessions/load", {"model": "thinker", "name": "a"})
    assert response.status_code == 404
    assert response.json() == {"error": "session 'a' of thinker:latest was not saved"}


@pytest.mark.usefixtures("session")
def test_another_kv_type_is_a_conflict(client, runtime):
    client.post("/api/sessions/save", BODY)
    runtime.worker_sessions.kv_type = "q8_0"
    response = client.post("/api/sessions/load", BODY)
    assert response.status_code == 409
    assert response.json() == {
        "error": "the session was saved with another KV cache type: f16, not q8_0",
    }


@pytest.mark.usefixtures("session")
def test_a_damaged_file_is_an_error_to_load_and_is_not_listed(client, runtime):
    client.post("/api/sessions/save", BODY)
    [path] = runtime.settings.sessions.glob("*/manifest")
    path.write_bytes(path.read_bytes()[:-1])
    response = client.post("/api/sessions/load", BODY)
    assert response.status_code == 500
    assert "is truncated" in response.json()["error"]
    assert listed(client)[0]["saved"] is False


@pytest.mark.parametrize(
    ("method", "path"),
    [("POST", "/api/sessions/save"), ("POST", "/api/sessions/load"), ("DELETE", "/api/sessions")],
)
@pytest.mark.parametrize(
    ("body", "status", "error"),
    [
        (None, 400, "missing request body"),
        ({"name": "a"}, 400, "model is required"),
        ({"model": "m"}, 400, "name is required"),
        ({"model": "m", "name": "../a"}, 400, 'session name "../a" is invalid'),
        ({"model": "none", "name": "a"}, 404, "none"),
        ({"model": "m", "name": "none"}, 404, "session 'none'"),
    ],
)
def test_wrong_requests_are_named(client, method, path, body, status, error):
    response = client.request(method, path, body)
    assert response.status_code == status
    assert error in response.json()["error"]


@pytest.mark.parametrize("path", ["/api/generate", "/api/chat"])
def test_requests_name_their_session(client, runtime, path):
    body = {"model": "m", "prompt": "hi", "messages": [{"role": "user", "content": "hi"}], "stream": False}
    assert client.post(path, body | {"session": "a"}).status_code == 200
    assert [job.session for job in runtime.requests] == ["a"]
    response = client.post(path, body | {"session": "../a"})
    assert response.status_code == 400
    assert 'session name "../a" is invalid' in response.json()["error"]
