"""Whatever fails, nothing half-written stays, and what was there before still is."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from puna.registry import ModelName, StoreError
from puna.registry.store.blob_writer import BlobWriter

pytestmark = pytest.mark.unit


def test_disk_full_while_writing_a_blob(store, full_disk, files_of):
    """`close` fails as well: it tries once more to write what Python had buffered."""
    with pytest.raises(StoreError, match="No space left on device"), store.blob_writer() as writer:  # noqa: PT012
        writer._file.close()
        writer._file = SimpleNamespace(write=full_disk, flush=full_disk, close=full_disk)
        writer.write(b"x")
    assert files_of(store.root) == set()


@pytest.mark.parametrize("call", ["fsync", "fchmod"])
def test_disk_full_at_the_end_of_a_blob(store, full_disk, monkeypatch, files_of, call):
    monkeypatch.setattr(os, call, full_disk)
    with pytest.raises(StoreError, match="No space left on device"):
        store.add_blob([b"x"])
    assert files_of(store.root) == set()


def test_disk_full_while_writing_a_manifest(store, add_model, full_disk, monkeypatch, files_of):
    manifest = add_model(store, "other")
    before = files_of(store.root)
    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(StoreError, match="No space left on device"):
        store.write_manifest(ModelName.parse("h.example/n/m:t"), manifest)
    assert files_of(store.root) == before
    assert not (store.root / "manifests/h.example").exists()


def test_directories_that_cannot_be_made(store, add_model, full_disk, monkeypatch):
    manifest = add_model(store, "other")
    monkeypatch.setattr(Path, "mkdir", full_disk)
    with pytest.raises(StoreError, match="No space left on device"):
        store.write_manifest(ModelName.parse("new"), manifest)
    with pytest.raises(StoreError, match="No space left on device"):
        store.blob_writer()


def test_the_old_manifest_survives_a_failed_replacement(store, add_model, full_disk, monkeypatch):
    add_model(store, "m", model=b"old")
    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", full_disk)
        with pytest.raises(StoreError):
            add_model(store, "m", model=b"new")
    assert store.find(ModelName.parse("m")).model_path.read_bytes() == b"old"


def test_a_cancelled_upload_leaves_nothing(store, files_of):
    with contextlib.suppress(KeyboardInterrupt), store.blob_writer() as writer:
        writer.write(b"x")
        raise KeyboardInterrupt
    assert files_of(store.root) == set()


def test_a_store_that_is_a_file(tmp_path):
    (tmp_path / "blobs").write_text("")
    with pytest.raises(StoreError, match="cannot write to"):
        BlobWriter(tmp_path / "blobs")


def test_a_directory_that_another_daemon_clears_away_is_made_again(store, add_model, monkeypatch):
    replace = Path.replace
    removals = iter(range(3))

    def clear_away_first(self, target):
        if "manifests" in str(target) and next(removals, None) is not None:
            target.parent.rmdir()
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", clear_away_first)
    add_model(store, "m")
    assert store.find(ModelName.parse("m"))
    assert next(removals, None) is None
