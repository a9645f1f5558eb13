"""Stores with files that no honest program wrote: what is sound is listed, cheaply; nothing hangs."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import tracemalloc

import pytest

from puna.registry import (
    CorruptManifest,
    MissingBlob,
    ModelName,
    ModelNotFound,
    Store,
    StoreError,
    UnsupportedModel,
)
from puna.registry.store.manifest import CONFIG_TYPE, LAYER_TYPE

pytestmark = pytest.mark.unit

LIBRARY = "manifests/registry.ollama.ai/library"


@pytest.fixture
def store(tmp_path):
    (tmp_path / "blobs").mkdir()
    return Store(tmp_path)


def blob(store, data):
    """(digest, size) of a blob."""
    digest = hashlib.sha256(data).hexdigest()
    (store.root / "blobs" / f"sha256-{digest}").write_bytes(data)
    return f"sha256:{digest}", len(data)


def layer(kind, digest_and_size):
    digest, size = digest_and_size
    return {"mediaType": LAYER_TYPE + kind, "digest": digest, "size": size}


def manifest(store, *layers, config=b"{}"):
    return {
        "schemaVersion": 2,
        "mediaType": "",
        "config": {**layer("", blob(store, config)), "mediaType": CONFIG_TYPE},
        "layers": [layer("model", blob(store, b"weights")), *layers],
    }


def write(store, name, content):
    path = store.root / LIBRARY / name / "latest"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def find(store, name):
    return store.find(ModelName.parse(name))


def sparse(path, num_bytes):
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.truncate(num_bytes)
    return path


def test_two_hundred_bad_models_beside_a_good_one(store, caplog):
    write(store, "good", manifest(store))
    deep = '{"config":' + "[" * 100_000 + "]" * 100_000 + "}"
    many = json.dumps(manifest(store) | {"layers": [layer("x", ("sha256:" + "0" * 64, 1 << 60))] * 25_000})
    for i in range(50):
        sparse(store.root / LIBRARY / f"huge{i}" / "latest", 1 << 30)
        write(store, f"deep{i}", deep)
        write(store, f"text{i}", "no JSON\x1b]52;c;eA==\x07")
        path = store.root / LIBRARY / f"pipe{i}" / "latest"
        path.parent.mkdir(parents=True)
        os.mkfifo(path)
    write(store, "many", many)
    tracemalloc.start()
    assert [model.name.model for model in store.list()] == ["good"]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 64 << 20
    assert len(caplog.messages) == 151  # a pipe is no manifest
    assert all(message.isprintable() and len(message) < 500 for message in caplog.messages)
    store.list()
    assert len(caplog.messages) == 151
    with pytest.raises(ModelNotFound):
        find(store, "pipe1")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"digest": "sha256:../../../../etc/passwd"}, "invalid digest"),
        ({"digest": "sha256:" + "0" * 63 + "\n"}, "invalid digest"),
        ({"digest": "x" * 100_000}, "length <= 256"),
        ({"size": -1}, ">= 0"),
        ({"size": 1 << 62}, "<="),
        ({"size": 8}, "has 7 bytes, expected 8"),
        ({"mediaType": "m" * 1000}, "length <= 256"),
    ],
)
def test_layers_that_lie(store, change, reason):
    content = manifest(store)
    weights = content["layers"][0]
    content["layers"] = [{**weights, **change}]
    if "mediaType" in change:
        content["layers"].append(weights)
    write(store, "m", content)
    with pytest.raises(CorruptManifest, match=reason) as error:
        find(store, "m")
    assert str(error.value).isprintable()
    assert store.list() == []


@pytest.mark.parametrize(
    "config",
    [
        b"[" * 50_000,
        b'{"rootfs":' + b"[" * 200_000 + b"]" * 200_000 + b"}",
        json.dumps({"model_type": "x" * 1000}).encode(),
        json.dumps({"model_families": ["x"] * 1000}).encode(),
        b" " * (2 << 20) + b"{}",
    ],
)
def test_configs_that_would_cost(store, config):
    write(store, "m", manifest(store, config=config))
    with pytest.raises(CorruptManifest):
        find(store, "m")
    assert store.list() == []


def test_a_license_that_is_named_200_times_is_read_once(store):
    license_blob = blob(store, b"x" * (1 << 20))
    write(store, "m", manifest(store, *[layer("license", license_blob)] * 200))
    assert [len(text) for text in find(store, "m").licenses] == [1 << 20]


@pytest.mark.parametrize(
    ("layers", "reason"),
    [
        ([("license", b"%d" % i + b" " * (2 << 20)) for i in range(5)], "too large for its kind"),
        ([("license", b"%d" % i) for i in range(101)], "more than 100 layers of text"),
        ([("params", b'{"stop": [' + b"[]," * 200_000 + b"[]]}")], "too large for its kind"),
        ([("params", b'{"stop":' + b"[" * 100_000 + b"]" * 100_000 + b"}")], "recursion"),
        ([("messages", b"[" * 100_000)], "recursion|Expected"),
        ([("template", b"\xff" * 100)], "utf-8"),
        ([("system", b" " * (5 << 20))], "too large for its kind"),
    ],
)
def test_texts_are_bounded_each_and_together(store, layers, reason):
    write(store, "m", manifest(store, *[layer(kind, blob(store, data)) for kind, data in layers]))
    with pytest.raises(CorruptManifest, match=reason):
        find(store, "m")
    assert [entry.name.model for entry in store.list()] == ["m"]  # which reads none of them


def replace(path, kind):
    path.unlink()
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(path))
    elif kind == "directory":
        path.mkdir()
    elif kind == "circle":
        path.symlink_to(path.name)
    else:
        path.symlink_to("nowhere")


KINDS = ["fifo", "device", "socket", "directory", "circle", "dangling"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("layer_kind", ["model", "template"])
def test_blobs_that_are_no_files(store, kind, layer_kind, monkeypatch):
    write(store, "m", manifest(store, layer("template", blob(store, b"text"))))
    model = find(store, "m")
    digest = next(item.digest for item in model.manifest.layers if item.kind == layer_kind)
    monkeypatch.chdir(store.root / "blobs")  # the paths of sockets are short
    replace(type(store.root)(digest.replace(":", "-")), kind)
    with pytest.raises((CorruptManifest, MissingBlob)):
        find(store, "m")
    if layer_kind == "model":
        with pytest.raises((StoreError, MissingBlob)):
            model.open()


@pytest.mark.parametrize("kind", KINDS)
def test_manifests_that_are_no_files(store, kind, monkeypatch):
    path = write(store, "m", manifest(store))
    monkeypatch.chdir(path.parent)
    replace(type(path)("latest"), kind)
    with pytest.raises((ModelNotFound, CorruptManifest)):
        find(store, "m")
    assert store.list() == []


def test_links_to_blobs_are_followed(store, tmp_path):
    write(store, "m", manifest(store))
    path = find(store, "m").model_path
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    descriptor = find(store, "m").open()
    assert os.read(descriptor, 10) == b"weights"
    assert not os.get_inheritable(descriptor)
    os.close(descriptor)


def test_names_that_no_one_can_type_and_links_in_a_circle(store):
    write(store, "m", manifest(store))
    for name in ("a\nb", "\x1b]52;c;eA==\x07", ".hidden", "a b", "ä", "..."):
        write(store, name, manifest(store))
    (store.root / LIBRARY / "circle").symlink_to("..")
    assert [model.name.short for model in store.list()] == ["m:latest"]


def test_names_that_differ_only_in_case(store):
    for name in ("Foo", "foo", "FOO"):
        write(store, name, manifest(store))
    assert [model.name.model for model in store.list()] == ["FOO"]
    assert find(store, "foo").name.model == "foo"
    assert find(store, "fOO").name.model == "FOO"


@pytest.mark.parametrize("time_s", [-(1 << 33), 1 << 33])
def test_times_that_no_clock_shows(store, time_s):
    os.utime(write(store, "m", manifest(store)), (time_s, time_s))
    (model,) = store.list()
    assert 1970 <= model.modified_at.year <= 9999


def test_a_model_with_several_adapters_is_refused_rather_than_run_with_one(store):
    adapters = [layer("adapter", blob(store, content)) for content in (b"LoRA", b"another")]
    write(store, "m", manifest(store, adapters[0]))
    assert find(store, "m").adapter_path.read_bytes() == b"LoRA"
    find(store, "m").check_loadable()
    write(store, "m", manifest(store, *adapters))
    with pytest.raises(UnsupportedModel, match="model 'm:latest' has several adapters"):
        find(store, "m").check_loadable()


def test_a_model_with_a_projector_answers_text(store):
    write(store, "m", manifest(store, layer("projector", blob(store, b"CLIP"))))
    find(store, "m").check_loadable()
    assert find(store, "m").model_path.read_bytes() == b"weights"
