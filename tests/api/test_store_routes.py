"""Blobs, create, pull."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator

import pytest

import puna.api.ollama.blobs as blobs_route
import puna.api.ollama.pull as pull_route
from puna.registry.progress import Progress
from tests.registry.loopback.contents import Contents
from tests.registry.loopback.server import Registry

pytestmark = pytest.mark.native


def digest_of(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


@pytest.fixture
def gguf(client, gguf_files) -> str:
    """Digest of an uploaded GGUF file."""
    data = gguf_files["bare"].read_bytes()
    client.post(f"/api/blobs/{digest_of(data)}", data)
    return digest_of(data)


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


def test_create_from_an_uploaded_file(client, gguf):
    lines = client.lines("/api/create", {"model": "mine", "files": {"model.gguf": gguf}})
    statuses = [line["status"] for line in lines]
    assert statuses[:2] == ["parsing GGUF", f"using existing layer {gguf}"]
    assert statuses[2].startswith("creating new layer sha256:")
    assert statuses[3:] == ["writing manifest", "success"]
    shown = client.post("/api/show", {"model": "mine"}).json()
    assert shown["origin"] == {"source": "file:model.gguf", "digest": gguf}
    details = shown["details"]
    assert (details["family"], details["parameter_size"], details["quantization_level"]) == (
        "llama",
        "160",
        "F32",
    )
    assert client.lines("/api/generate", {"model": "mine", "prompt": "hi"})[-1]["done"]


def test_create_not_streamed_is_the_last_status(client, gguf):
    response = client.post("/api/create", {"name": "mine", "files": {"m": gguf}, "stream": False})
    assert response.json() == {"status": "success"}


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"model": "x"}, "neither 'from' or 'files' was specified"),
        ({"model": "x", "from": "m"}, "'from' is not supported yet"),
        ({"model": "x", "files": {"a": "DIGEST", "b": "DIGEST"}}, "more than one file is not supported"),
        ({"model": "x", "files": {"a": "DIGEST"}, "system": "S"}, "'system' is not supported yet"),
        ({"model": "x", "files": {"a": "DIGEST"}, "quantize": "Q8_0"}, "'quantize' is not supported yet"),
        ({"model": "x", "files": {"/etc/passwd": "DIGEST"}}, "file path must be relative"),
        ({"model": "x", "files": {"../a": "DIGEST"}}, "file path must be relative"),
        ({"model": "x", "files": {"a": "sha256:1"}}, "invalid digest format"),
        ({"model": "x", "files": {"a": 1}}, "Expected `str`"),
        ({"model": "../x", "files": {"a": "DIGEST"}}, "invalid model name"),
        ({"files": {"a": "DIGEST"}}, "invalid model name"),
    ],
)
def test_other_forms_of_create_are_400(client, gguf, body, text):
    if "files" in body:
        body["files"] = {path: gguf if d == "DIGEST" else d for path, d in body["files"].items()}
    response = client.post("/api/create", body)
    assert response.status_code == 400
    assert text in response.json()["error"]


def test_create_from_what_is_no_gguf_says_so_and_leaves_nothing(client, runtime):
    digest = digest_of(b"no gguf at all")
    client.post(f"/api/blobs/{digest}", b"no gguf at all")
    lines = client.lines("/api/create", {"model": "bad", "files": {"a": digest}})
    assert lines[0] == {"status": "parsing GGUF"}
    assert lines[-1]["error"]
    assert "blobs" not in lines[-1]["error"]
    response = client.post("/api/create", {"model": "bad", "files": {"a": digest}, "stream": False})
    assert response.status_code == 400
    assert [model.name.short for model in runtime.store.list()] == ["m:latest"]


def test_create_from_a_blob_that_is_not_there_is_400(client):
    body = {"model": "bad", "files": {"a": digest_of(b"never sent")}, "stream": False}
    response = client.post("/api/create", body)
    assert response.status_code == 400
    assert "not found" in response.json()["error"]


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
