"""Blobs, pull."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator

import pytest

import puna.api.ollama.blobs as blobs_route
import puna.api.ollama.pull as pull_route
from puna.registry.local.local_models import LocalModels
from puna.registry.progress import Progress
from tests.registry.loopback.contents import Contents
from tests.registry.loopback.server import Registry

pytestmark = pytest.mark.native


def digest_of(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


def test_blob_that_would_fill_the_disk_is_refused_and_leaves_nothing(client, runtime, monkeypatch):
    before = set(runtime.store.blobs.iterdir())
    monkeypatch.setattr(blobs_route, "_SPARE_BYTES", 1 << 60)
    response = client.post(f"/api/blobs/{digest_of(b'x')}", b"x")
    assert response.status_code == 507
    assert "no room" in response.json()["error"]
    assert set(runtime.store.blobs.iterdir()) == before


def test_blob_is_stored_once(client, runtime):
    data = b"x" * 3_000_000
    path = f"/api/blobs/{digest_of(data)}"
    assert client.request("HEAD", path).status_code == 404
    assert client.post(path, data).status_code == 201
    assert client.request("HEAD", path).status_code == 200
    assert client.request("HEAD", path.replace(":", "-")).status_code == 200
    assert client.post(path, b"ignored").status_code == 200
    assert runtime.store.blob_path(digest_of(data)).read_bytes() == data


def test_blob_that_is_not_what_it_says_is_not_kept(client, runtime):
    before = set(runtime.store.blobs.iterdir())
    wanted, sent = digest_of(b"a"), digest_of(b"b")
    response = client.post(f"/api/blobs/{wanted}", b"b")
    assert response.status_code == 400
    assert response.json()["error"] == f'digest mismatch, expected "{wanted}", got "{sent}"'
    assert set(runtime.store.blobs.iterdir()) == before


@pytest.mark.parametrize("method", ["HEAD", "POST"])
@pytest.mark.parametrize("digest", ["sha256:abc", "md5:" + "0" * 64, "sha256:" + "g" * 64])
def test_bad_digest_is_400(client, method, digest):
    response = client.request(method, f"/api/blobs/{digest}", b"")
    assert response.status_code == 400
    if method == "POST":
        assert response.json() == {"error": "invalid digest format"}


def fake_pull(*steps: Progress | Exception):
    async def pull(*_: object) -> AsyncIterator[Progress]:
        for step in steps:
            if isinstance(step, Exception):
                raise step
            yield step

    return pull


def test_pull_streams_progress(client, monkeypatch):
    steps = [
        Progress("pulling manifest"),
        Progress("pulling abc", digest="sha256:abc", total=10, completed=10),
        Progress("success"),
    ]
    monkeypatch.setattr(pull_route, "pull_model", fake_pull(*steps))
    assert client.lines("/api/pull", {"model": "x"}) == [
        {"status": "pulling manifest"},
        {"status": "pulling abc", "digest": "sha256:abc", "total": 10, "completed": 10},
        {"status": "success"},
    ]
    assert client.post("/api/pull", {"name": "x", "stream": False}).json() == {"status": "success"}


def test_pull_that_fails_says_so_in_the_stream(client, tmp_path):
    with Registry(Contents(tmp_path / "registry")) as registry:
        name = f"{registry.host}/nobody/knows:this"
        lines = client.lines("/api/pull", {"model": name, "insecure": True})
        assert lines == [
            {"status": "pulling manifest"},
            {"error": "pull model manifest: file does not exist"},
        ]
        response = client.post("/api/pull", {"model": name, "insecure": True, "stream": False})
        assert response.status_code == 500
        assert response.json() == {"error": "pull model manifest: file does not exist"}


def test_a_pulled_model_is_listed(client, tmp_path):
    with Registry(Contents(tmp_path / "registry")) as registry:
        name = f"{registry.host}/library/m:1b"
        registry.contents.add_model("library/m", "1b", model=b"GGUF", system=b"Be brief.")
        assert client.lines("/api/pull", {"model": name, "insecure": True})[-1] == {"status": "success"}
        assert name in [model["name"] for model in client.get("/api/tags").json()["models"]]
        assert registry.contents.manifests["library/m", "1b"][0] == next(
            path.read_bytes() for path in tmp_path.glob(f"**/manifests/{name.replace(':1b', '')}/1b")
        )


@pytest.mark.parametrize("name", ["", "../x", "x@sha256:1"])
def test_pull_of_an_invalid_name_is_400(client, name):
    response = client.post("/api/pull", {"model": name})
    assert (response.status_code, response.json()) == (400, {"error": "invalid model name"})


def test_push_of_what_is_not_there(client):
    assert client.post("/api/push", {}).json() == {"error": "model is required"}
    response = client.post("/api/push", {"model": "http://h.example/n/m"})
    assert response.text.splitlines() == [
        '{"status":"retrieving manifest"}',
        '{"error":"insecure protocol http"}',
    ]
    response = client.post("/api/push", {"model": "n/m", "stream": False})
    assert (response.status_code, response.json()) == (404, {"error": "model 'n/m:latest' not found"})


def test_files_of_other_programs_are_listed_shown_and_run_but_not_changed(
    client, runtime, gguf_files, tmp_path
):
    path = tmp_path / "lmstudio" / "publisher" / "repo" / "model-Q8_0.gguf"
    path.parent.mkdir(parents=True)
    path.symlink_to(gguf_files["plain"])
    runtime.store.local = LocalModels(lm_studio=tmp_path / "lmstudio")
    name = "lmstudio/publisher/repo:Q8_0"
    (listed,) = client.request("GET", "/api/local").json()["models"]
    assert (listed["name"], listed["source"], listed["files"]) == (name, "LM Studio", [str(path)])
    shown = client.post("/api/show", {"model": name}).json()
    assert shown["details"]["family"] == shown["model_info"]["general.architecture"]
    assert shown["capabilities"]
    reply = client.post("/api/generate", {"model": name, "prompt": "hi", "stream": False})
    assert (reply.status_code, reply.json()["model"]) == (200, name)
    assert client.post("/api/copy", {"source": name, "destination": "x"}).status_code == 404
    assert [model["name"] for model in client.request("GET", "/api/tags").json()["models"]] == ["m:latest"]
    assert (
        client.request("DELETE", "/api/delete", {"model": name}).json()["error"].endswith("puna only reads")
    )
    assert path.exists()
