"""What holds for every route: bodies, errors, guards."""

from __future__ import annotations

from dataclasses import replace

import pytest

import puna
from puna.api.app import create_app
from puna.config.host import Host
from tests.api.conftest import Client
from tests.api.fake_runtime import FakeRuntime

pytestmark = pytest.mark.native


def test_root_says_what_clients_look_for(client):
    assert client.get("/").text == "Ollama is running"
    head = client.request("HEAD", "/")
    assert head.status_code == 200
    assert head.content == b""


def test_version_is_one_that_clients_of_ollama_accept_and_puna_s_beside_it(client):
    versions = client.get("/api/version").json()
    assert versions["puna"] == puna.__version__
    assert tuple(map(int, versions["version"].split("."))) >= (0, 17, 6)
    assert client.request("HEAD", "/api/version").status_code == 200


def test_health(client):
    assert client.get("/health").json() == {"status": "ok"}
    assert client.request("HEAD", "/health").status_code == 200


@pytest.mark.parametrize(
    ("method", "path", "status", "error"),
    [
        ("POST", "/api/me", 401, "unauthorized"),
        ("POST", "/api/signout", 401, "you are not currently signed in"),
        ("DELETE", "/api/user/keys/abc", 401, "you are not currently signed in"),
        (
            "POST",
            "/api/experimental/web_search",
            403,
            "ollama cloud is disabled: web search is unavailable",
        ),
        ("POST", "/api/experimental/web_fetch", 403, "ollama cloud is disabled: web fetch is unavailable"),
    ],
)
def test_the_cloud_is_disabled(client, method, path, status, error):
    response = client.request(method, path, {} if method == "POST" else None)
    assert (response.status_code, response.json()) == (status, {"error": error})
    assert client.get("/api/status").json()["cloud"]["disabled"] is True
    assert client.get("/api/experimental/model-recommendations").json() == {"recommendations": []}


def test_unknown_path_is_plain_404(client):
    response = client.get("/api/nothing")
    assert (response.status_code, response.text) == (404, "404 page not found")
    assert response.headers["content-type"].startswith("text/plain")


def test_wrong_method_is_plain_405(client):
    response = client.get("/api/chat")
    assert (response.status_code, response.text) == (405, "405 method not allowed")
    assert response.headers["content-type"].startswith("text/plain")


@pytest.mark.parametrize("path", ["/api/chat", "/api/generate", "/api/show", "/api/pull", "/api/create"])
@pytest.mark.parametrize("body", [None, b"", b" \n"])
def test_empty_body_is_400(client, path, body):
    response = client.post(path, body)
    assert (response.status_code, response.json()) == (400, {"error": "missing request body"})


def test_empty_body_of_openai_is_eof(client):
    response = client.post("/v1/chat/completions")
    assert response.status_code == 400
    assert response.json()["error"]["message"] == "EOF"
    assert client.post("/v1/messages").json()["error"]["message"] == "EOF"


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"x",
        b'{"model": }',
        b'{"model": "\xff"}',
        b"[" * 100_000,
        b'{"model": 1e999}',
        b'"model"',
        b"[]",
    ],
)
def test_malformed_json_is_400_with_a_text(client, body):
    for path in ("/api/chat", "/v1/chat/completions"):
        response = client.post(path, body)
        assert response.status_code == 400
        assert response.json()["error"]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("model", 1),
        ("messages", "hi"),
        ("messages", [1]),
        ("messages", [{"role": "user", "content": ["parts"]}]),
        ("stream", "yes"),
        ("options", []),
        ("top_logprobs", 1.5),
        ("logprobs", 1),
        ("truncate", 0),
    ],
)
def test_wrong_type_is_400_and_names_the_field(client, field, value):
    response = client.post("/api/chat", {"model": "m", field: value})
    assert response.status_code == 400
    assert field in response.json()["error"]


def test_keys_match_in_any_case_null_is_absent_and_the_unknown_is_ignored(client):
    body = (
        b'{"MODEL": "m", "Stream": false, "prompt": "hi", "system": null, "no_such_field": [1], "raw": null}'
    )
    response = client.post("/api/generate", body)
    assert response.status_code == 200
    assert response.json()["response"] == "Hello"


def test_exact_key_wins_over_one_in_another_case(client):
    assert client.post("/api/show", b'{"model": "m", "MODEL": "other"}').status_code == 200
    assert client.post("/api/show", b'{"MODEL": "other", "model": "m"}').status_code == 200


def test_only_the_first_json_value_is_read(client):
    assert client.post("/api/show", b'{"model": "m"} {"model": 5} garbage').status_code == 200


def test_null_body_is_an_empty_object(client):
    response = client.post("/api/chat", b"null")
    assert (response.status_code, response.json()) == (400, {"error": "model is required"})


def test_content_type_does_not_matter(client):
    body = b'{"model": "m"}'
    assert client.post("/api/show", body).status_code == 200
    assert client.post("/api/show", body, **{"Content-Type": "text/plain"}).status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "localhost:11434",
        "127.0.0.1:11434",
        "[::1]:11434",
        "foo.local",
        "foo.internal",
        "foo.localhost",
        "192.168.1.5",
        "0.0.0.0",
        "LOCALHOST",
    ],
)
def test_local_hosts_are_let_in(client, host):
    assert client.get("/", Host=host).status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example", "8.8.8.8", "local", "[::1", "a:b:c"]
)
def test_foreign_hosts_get_an_empty_403(client, host):
    response = client.get("/", Host=host)
    assert (response.status_code, response.content) == (403, b"")


def test_any_host_is_let_in_where_the_server_is_meant_to_be_reached(runtime: FakeRuntime):
    runtime.settings = replace(runtime.settings, host=Host(address="0.0.0.0"))
    assert Client(create_app(runtime)).get("/", Host="evil.example").status_code == 200


def test_options_of_a_named_host_is_204(client):
    assert client.request("OPTIONS", "/api/chat").status_code == 204


@pytest.mark.parametrize(
    "origin",
    [
        "http://localhost",
        "http://localhost:3000",
        "https://127.0.0.1:8443",
        "http://0.0.0.0",
        "app://obsidian.md",
        "vscode-webview://abc",
        "http://localhost:11434",
    ],
)
def test_local_origins_are_allowed(client, origin):
    response = client.get("/api/version", Origin=origin)
    assert response.status_code == 200
    preflight = client.request("OPTIONS", "/api/chat", Origin=origin)
    assert preflight.status_code == 204
    if origin != "http://localhost:11434":  # the server's own needs no permission
        assert response.headers["access-control-allow-origin"] == origin
        assert preflight.headers["access-control-max-age"] == "43200"
        assert "Authorization" in preflight.headers["access-control-allow-headers"]


@pytest.mark.parametrize("origin", ["https://evil.example", "http://localhost.evil.example", "null"])
def test_other_origins_get_an_empty_403(client, origin):
    for method in ("GET", "OPTIONS"):
        response = client.request(method, "/api/version", Origin=origin)
        assert (response.status_code, response.content) == (403, b"")
        assert "access-control-allow-origin" not in response.headers


def test_origins_of_the_settings_are_allowed_too(runtime: FakeRuntime):
    runtime.settings = replace(runtime.settings, origins=("https://*.example",))
    client = Client(create_app(runtime))
    assert client.get("/", Origin="https://chat.example").status_code == 200
    assert client.get("/", Origin="https://chat.other").status_code == 403


def test_a_star_allows_every_origin(runtime: FakeRuntime):
    runtime.settings = replace(runtime.settings, origins=("*",))
    response = Client(create_app(runtime)).get("/", Origin="https://evil.example")
    assert response.headers["access-control-allow-origin"] == "*"


def test_an_error_nobody_foresaw_is_a_500_that_tells_nothing(client, runtime, monkeypatch):
    monkeypatch.setattr(runtime, "loaded", lambda: 1 / 0)
    response = client.get("/api/ps")
    assert (response.status_code, response.json()) == (500, {"error": "internal server error"})
