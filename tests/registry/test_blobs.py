"""Blobs are named by their content, shared by models, and gone with the last of them."""

from __future__ import annotations

import hashlib
import os
import threading
from pathlib import Path

import pytest

from puna.registry import DigestMismatch, InvalidDigest, ModelName, ModelNotFound

pytestmark = pytest.mark.unit


def name(text):
    return ModelName.parse(text)


def digest_of(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


def test_delete_keeps_shared_blobs_and_removes_the_others(store, add_model, files_of):
    add_model(store, "a", model=b"shared", template=b"only a")
    add_model(store, "b", model=b"shared")
    store.delete(name("A"))
    assert store.find(name("b")).model_path.read_bytes() == b"shared"
    store.delete(name("b"))
    assert files_of(store.root) == set()
    assert [path.name for path in store.root.iterdir()] == ["blobs", "manifests"] or not any(
        (store.root / "manifests").iterdir()
    )


def test_delete_of_an_unknown_model(store):
    with pytest.raises(ModelNotFound):
        store.delete(name("x"))


def test_a_corrupt_model_can_be_deleted(store, add_model):
    add_model(store, "m")
    (store.root / "manifests/registry.ollama.ai/library/m/latest").write_text("{")
    store.delete(name("m"))
    with pytest.raises(ModelNotFound):
        store.find(name("m"))


def test_no_blob_is_removed_while_a_manifest_cannot_be_read(store, add_model):
    """What a corrupt manifest names is unknown: it may be the very blob."""
    manifest = add_model(store, "a", model=b"shared")
    add_model(store, "b", model=b"shared")
    (store.root / "manifests/registry.ollama.ai/library/b/latest").write_text("{")
    store.delete(name("a"))
    assert store.has_blob(manifest.layers[0].digest)


def test_models_added_and_deleted_at_once_never_miss_a_blob(store, add_model):
    """All models share their blobs; whoever deletes must not take them from whoever has just written."""
    failures = []

    def work(text):
        for _ in range(20):
            try:
                with store.exclusive():
                    add_model(store, text, model=b"shared")
                store.find(name(text))
                store.delete(name(text))
            except Exception as error:
                failures.append(error)

    threads = [threading.Thread(target=work, args=(f"m{i}",)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert store.list() == []


def test_a_blob_is_named_by_its_content(store):
    digest = store.add_blob([b"he", b"llo"])
    assert digest == digest_of(b"hello")
    assert store.has_blob(digest)
    assert store.has_blob(digest.replace(":", "-").upper().replace("SHA256", "sha256"))
    assert store.blob_path(digest).name == digest.replace(":", "-")


def test_an_existing_blob_is_kept_and_touched(store):
    path = store.blob_path(store.add_blob([b"x"]))
    os.utime(path, (1, 1))
    inode = path.stat().st_ino
    store.add_blob([b"x"])
    assert path.stat().st_ino == inode
    assert path.stat().st_mtime > 1


def test_a_truncated_blob_is_replaced(store):
    path = store.blob_path(store.add_blob([b"whole"]))
    path.write_bytes(b"wh")
    store.add_blob([b"whole"])
    assert path.read_bytes() == b"whole"


def test_unexpected_content_is_refused_and_gone(store, files_of):
    expected, actual = digest_of(b"a"), digest_of(b"b")
    with pytest.raises(DigestMismatch, match=f'digest mismatch, expected "{expected}", got "{actual}"'):
        store.add_blob([b"b"], expected)
    assert files_of(store.root) == set()


@pytest.mark.parametrize(
    "text", ["", "x", "sha256:", "sha256:" + "g" * 64, "md5:" + "0" * 64, "sha256:../" + "0" * 61]
)
def test_a_digest_is_checked_before_it_becomes_a_path(store, text):
    with pytest.raises(InvalidDigest, match="invalid digest format"):
        store.blob_path(text)


def test_a_blob_that_is_removed_while_it_is_made_again_is_there(store, monkeypatch):
    digest = store.add_blob([b"again"])
    renew = os.utime

    def remove_first(path, *arguments, **named):
        Path(path).unlink()
        renew(path, *arguments, **named)

    with monkeypatch.context() as patch:
        patch.setattr(os, "utime", remove_first)
        store.add_blob([b"again"])
    assert store.blob_path(digest).read_bytes() == b"again"
