"""The store reads and writes Ollama's layout: manifest -> layer digest -> blob."""

from __future__ import annotations

import hashlib
import json
import os
import re
from pathlib import Path

import pytest

from puna.registry import (
    CorruptManifest,
    InvalidModelName,
    Layer,
    Manifest,
    MissingBlob,
    ModelName,
    ModelNotFound,
    ReadOnlyModel,
    Store,
    StoreError,
)
from puna.registry.store.manifest import CONFIG_TYPE, LAYER_TYPE

pytestmark = pytest.mark.unit


def name(text):
    return ModelName.parse(text)


def digest_of(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


def write_ollama_model(root, manifest_path, **layers):
    """The files of a model, made by hand as Ollama lays them out."""

    def blob(media_type, data):
        path = root / "blobs" / f"sha256-{hashlib.sha256(data).hexdigest()}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return {"mediaType": media_type, "digest": digest_of(data), "size": len(data)}

    config = {
        "model_format": "gguf", "model_family": "qwen3", "model_families": ["qwen3"],
        "model_type": "4.0B", "file_type": "F16", "architecture": "amd64", "os": "linux",
        "rootfs": {"type": "layers"},
    }  # fmt: skip
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.docker.distribution.manifest.v2+json",
        "config": blob("application/vnd.docker.container.image.v1+json", json.dumps(config).encode()),
        "layers": [
            blob(f"application/vnd.ollama.image.{kind.partition('__')[0]}", data)
            for kind, data in layers.items()
        ],
    }
    path = root / "manifests" / manifest_path
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(manifest))
    return path


def test_reads_a_model_that_ollama_wrote(store):
    path = write_ollama_model(
        store.root,
        "registry.ollama.ai/library/Qwen3/4b-instruct-2507-fp16",
        model=b"GGUF...",
        template=b"{{ .Prompt }}",
        system=b"Be brief.",
        params=b'{"stop": ["<a>", "<b>"], "temperature": 0.5}',
        messages=b'[{"role": "user", "content": "hi"}]',
        license__1=b"MIT",
        license__2=b"and more",
    )
    model = store.find(name("qwen3:4B-Instruct-2507-FP16"))
    assert model.name.short == "Qwen3:4b-instruct-2507-fp16"
    assert model.model_path.read_bytes() == b"GGUF..."
    assert (model.template, model.system, model.licenses) == (
        "{{ .Prompt }}",
        "Be brief.",
        ["MIT", "and more"],
    )
    assert model.params == {"stop": ["<a>", "<b>"], "temperature": 0.5}
    assert [(message.role, message.content) for message in model.messages] == [("user", "hi")]
    assert model.digest == hashlib.sha256(path.read_bytes()).hexdigest()
    assert model.size == sum(file.stat().st_size for file in (store.root / "blobs").iterdir())
    assert model.modified_at.timestamp() == pytest.approx(path.stat().st_mtime)
    assert model.modified_at.utcoffset() is not None
    assert (model.config.family, model.config.parameter_size, model.config.quantization) == (
        "qwen3",
        "4.0B",
        "F16",
    )


def test_writes_what_ollama_reads(store, add_model):
    add_model(store, "n/m:t", model=b"weights")
    path = store.root / "manifests/registry.ollama.ai/n/m/t"
    manifest = json.loads(path.read_text())
    assert set(manifest) == {"schemaVersion", "mediaType", "config", "layers"}
    (layer,) = manifest["layers"]
    assert layer == {
        "mediaType": "application/vnd.ollama.image.model",
        "digest": digest_of(b"weights"),
        "size": 7,
    }
    blob = store.root / "blobs" / layer["digest"].replace(":", "-")
    assert blob.read_bytes() == b"weights"
    assert blob.stat().st_mode & 0o777 == path.stat().st_mode & 0o777 == 0o644


def test_list_is_newest_first_and_leaves_out_what_is_corrupt(store, add_model, caplog):
    for age, text in enumerate(("newest", "middle", "oldest")):
        add_model(store, text)
        path = store.root / "manifests/registry.ollama.ai/library" / text / "latest"
        os.utime(path, (1e9 - age, 1e9 - age))
    add_model(store, "broken")
    (store.root / "manifests/registry.ollama.ai/library/broken/latest").write_text("{")
    (store.root / "manifests/registry.ollama.ai/library/deep/er").mkdir(parents=True)
    (store.root / "manifests/registry.ollama.ai/library/deep/er/file").write_text("{}")
    (store.root / "manifests/registry.ollama.ai/library/newest/.DS_Store").write_text("{}")
    assert [model.name.model for model in store.list()] == ["newest", "middle", "oldest"]
    assert "broken:latest" in caplog.text


def test_empty_or_absent_store_has_no_models(store):
    assert store.list() == []
    with pytest.raises(ModelNotFound, match="model 'x:latest' not found"):
        store.find(name("x"))


def test_names_longer_than_the_file_system_allows_are_not_found(store):
    with pytest.raises(ModelNotFound):
        store.find(name("h" * 300 + "/n/m"))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "Input data was truncated"),
        ("{}", "config"),
        ("[1]", "Expected `object`"),
        ('{"schemaVersion":2,"mediaType":"x","config":{"mediaType":"c","digest":"sha256:../../x","size":1},'
         '"layers":[]}', "invalid digest 'sha256:../../x'"),
        ("\xff", "malformed"),
        ("x" * (5 << 20), "larger than 4194304 bytes"),
    ],
)  # fmt: skip
def test_a_corrupt_manifest_is_reported_by_its_name_and_not_where_it_is(store, text, reason):
    path = store.root / "manifests/registry.ollama.ai/library/m/latest"
    path.parent.mkdir(parents=True)
    path.write_text(text, encoding="latin-1")
    with pytest.raises(CorruptManifest, match=re.escape(reason)) as error:
        store.find(name("m"))
    assert "manifest registry.ollama.ai/library/m/latest: " in str(error.value)
    assert str(store.root) not in str(error.value)


def test_a_manifest_needs_exactly_one_gguf_layer(store):
    write_ollama_model(store.root, "registry.ollama.ai/library/m/latest", template=b"x")
    with pytest.raises(CorruptManifest, match="0 layers of GGUF weights"):
        store.find(name("m"))


def test_a_missing_blob_is_named(store, add_model):
    manifest = add_model(store, "m")
    digest = manifest.layers[0].digest
    store.blob_path(digest).unlink()
    with pytest.raises(MissingBlob, match=digest):
        store.find(name("m"))
    assert store.list() == []


def test_a_blob_of_the_wrong_size_is_found_out(store, add_model):
    manifest = add_model(store, "m", model=b"weights")
    store.blob_path(manifest.layers[0].digest).write_bytes(b"weigh")
    with pytest.raises(CorruptManifest, match="has 5 bytes, expected 7"):
        store.find(name("m"))


@pytest.mark.parametrize(
    "layers", [{"params": b"[1]"}, {"params": b"{"}, {"messages": b"{}"}, {"system": b"\xff"}]
)
def test_an_unreadable_layer_is_a_corrupt_manifest(store, add_model, layers):
    add_model(store, "m", **layers)
    with pytest.raises(CorruptManifest, match="sha256:"):
        store.find(name("m"))


def test_weights_are_never_read_as_text(store, add_model):
    add_model(store, "m", template=b" " * (17 << 20))
    with pytest.raises(CorruptManifest, match="too large for its kind"):
        store.find(name("m"))


def test_another_spelling_replaces_the_same_model(store, add_model):
    add_model(store, "foo", model=b"1")
    add_model(store, "FOO", model=b"2")
    (model,) = store.list()
    assert model.name.model == "foo"
    assert model.model_path.read_bytes() == b"2"


def test_a_manifest_may_only_name_blobs_that_are_there(store):
    absent = digest_of(b"absent")
    manifest = Manifest(
        config=Layer(CONFIG_TYPE, store.add_blob([b"{}"]), 2), layers=[Layer(LAYER_TYPE + "model", absent, 6)]
    )
    with pytest.raises(MissingBlob, match=absent):
        store.write_manifest(name("m"), manifest)
    assert store.list() == []


# Read-only stores


def test_system_wide_models_are_found_but_not_deleted(tmp_path, store, add_model):
    system = tmp_path / "system"
    add_model(Store(system), "shared", model=b"theirs")
    add_model(Store(system), "both", model=b"theirs")
    add_model(store, "both", model=b"ours")
    store = Store(store.root, [system])
    assert {model.name.model: model.model_path.read_bytes() for model in store.list()} == {
        "shared": b"theirs",
        "both": b"ours",
    }
    with pytest.raises(ReadOnlyModel, match="only reads"):
        store.delete(name("SHARED"))
    store.delete(name("both"))
    assert store.find(name("both")).model_path.read_bytes() == b"theirs"


def test_default_store_follows_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path / "models"))
    assert Store.default().root == tmp_path / "models"
    monkeypatch.delenv("OLLAMA_MODELS")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert Store.default().root == tmp_path / ".ollama/models"


def test_no_error_says_where_a_blob_is(store):
    write_ollama_model(store.root, "registry.ollama.ai/library/m/latest", model=b"x" * 10)
    model = store.find(name("m"))
    model.model_path.write_bytes(b"short")
    with pytest.raises(CorruptManifest, match="has 5 bytes, expected 10") as corrupt:
        store.find(name("m"))
    model.model_path.unlink()
    model.model_path.mkdir()
    with pytest.raises(StoreError, match="cannot read sha256-") as unreadable:
        model.open()
    assert not any(str(store.root) in str(error.value) for error in (corrupt, unreadable))


# Revisions


def test_a_revision_is_found_under_its_own_name_and_under_any_tag_of_its_model(store, add_model):
    add_model(store, "n/m:t")
    model = store.find(name("n/m:t"))
    assert store.find(name(f"n/m@sha256:{model.digest}")).name == model.name
    with pytest.raises(ModelNotFound):
        store.find(name(f"n/other@sha256:{model.digest}"))
    pinned = name(f"n/m@sha256:{model.digest}")
    with pytest.raises(ModelNotFound):
        store.delete(pinned)  # it is not what has been named
    store.write_manifest(pinned, model.manifest)
    add_model(store, "n/m:t", model=b"newer")
    assert store.find(pinned).name == pinned


def test_no_other_revision_goes_by_the_name_of_one(store, add_model):
    add_model(store, "m")
    model = store.find(name("m"))
    other = name("m@sha256:" + "0" * 64)
    with pytest.raises(InvalidModelName):
        store.write_manifest(other, model.manifest)
    path = store.root / "manifests" / Path(*other.parts)
    path.write_bytes((path.parent / "latest").read_bytes())
    with pytest.raises(CorruptManifest, match="is another revision"):
        store.find(other)
    assert [entry.name.tag for entry in store.list()] == ["latest"]
