"""What a daemon clears away when it starts, and what it leaves."""

from __future__ import annotations

import json
import os
import time

import pytest

from puna.registry import ModelName
from puna.registry.store.blob_holds import BlobHolds
from puna.registry.store.partial_blob import PartialBlob
from puna.registry.store.pruning import MAX_DOWNLOAD_AGE_S, clear_up

pytestmark = pytest.mark.unit

HEX = "0123456789abcdef" * 4
OTHER = "fedcba9876543210" * 4
HOUR_S = 3600


def put(store, name, age_s, text="half"):
    path = store.root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    os.utime(path, (time.time() - age_s,) * 2)
    return path


def age(path, age_s):
    os.utime(path, (time.time() - age_s,) * 2)


@pytest.fixture
def old_model(store, add_model):
    """Whose blobs and manifest are all old."""
    add_model(store, "m", template=b"t")
    for path in store.root.rglob("*"):
        age(path, 100 * HOUR_S)


@pytest.mark.usefixtures("old_model")
def test_unused_blobs_go_when_they_are_old(store, files_of):
    used = files_of(store.root)
    put(store, f"blobs/sha256-{HEX}", 2 * HOUR_S)
    young = put(store, f"blobs/sha256-{OTHER}", HOUR_S / 2)
    clear_up(store, prunes=True)
    assert files_of(store.root) == used | {str(young.relative_to(store.root))}


@pytest.mark.usefixtures("old_model")
def test_nothing_goes_that_is_not_to_be_pruned(store, files_of):
    for name in (f"blobs/sha256-{HEX}", f"blobs/sha256-{OTHER}-partial", "blobs/sha256-123456"):
        put(store, name, 1000 * HOUR_S)
    (store.root / "manifests/empty/directory").mkdir(parents=True)
    before = files_of(store.root)
    clear_up(store, prunes=False)
    assert files_of(store.root) == before
    assert (store.root / "manifests/empty/directory").exists()
    clear_up(store, prunes=True)
    assert len(files_of(store.root)) == len(before) - 3
    assert not (store.root / "manifests/empty").exists()


@pytest.mark.usefixtures("old_model")
def test_a_corrupt_manifest_keeps_all_blobs(store, files_of):
    put(store, f"blobs/sha256-{HEX}", 2 * HOUR_S)
    put(store, "manifests/h/n/m/t", 0, "{")
    before = files_of(store.root)
    clear_up(store, prunes=True)
    assert files_of(store.root) == before


def test_leftovers_of_killed_processes_go_when_they_are_old(store, files_of):
    leftovers = ("blobs/puna-1.tmp", "manifests/puna-2.tmp", "puna-pull-3/x.whl", "blobs/sha256-42")
    for name in leftovers:
        path = put(store, name, 2 * HOUR_S)
        age(path.parent, 2 * HOUR_S)
    running = {"puna-pull-4/main/y.whl", "blobs/puna-5.tmp", f"blobs/sha256-{HEX}.tmp", "blobs/README"}
    for name in running:
        put(store, name, 100 * HOUR_S if name.endswith("README") else 0)
    clear_up(store, prunes=True)
    assert files_of(store.root) == running


def begun_by_ollama(store, age_s):
    put(store, f"blobs/sha256-{HEX}-partial", age_s, "x" * 100)
    for number in range(2):
        record = {"N": number, "Offset": 50 * number, "Size": 50, "Completed": 7}
        put(store, f"blobs/sha256-{HEX}-partial-{number}", age_s, json.dumps(record))


def test_downloads_that_were_broken_off_stay_for_days(store, files_of):
    begun_by_ollama(store, MAX_DOWNLOAD_AGE_S - HOUR_S)
    before = files_of(store.root)
    clear_up(store, prunes=True)
    assert files_of(store.root) == before
    begun_by_ollama(store, MAX_DOWNLOAD_AGE_S + HOUR_S)
    put(store, f"blobs/sha256-{HEX}-partial-1", 0)  # the latest change counts
    clear_up(store, prunes=True)
    assert files_of(store.root) == before
    begun_by_ollama(store, MAX_DOWNLOAD_AGE_S + HOUR_S)
    clear_up(store, prunes=True)
    assert files_of(store.root) == set()


def test_a_download_that_is_on_its_way_stays_however_long_it_takes(store, files_of):
    begun_by_ollama(store, 0)
    with PartialBlob.open(store.blobs, f"sha256:{HEX}", 100):
        before = files_of(store.root)
        for path in store.blobs.iterdir():
            age(path, 2 * MAX_DOWNLOAD_AGE_S)
        clear_up(store, prunes=True)
        assert files_of(store.root) == before
    clear_up(store, prunes=True)
    assert files_of(store.root) == set()


def test_records_without_their_download_go_like_leftovers(store, files_of):
    put(store, f"blobs/sha256-{HEX}-partial-3", 2 * HOUR_S)
    clear_up(store, prunes=True)
    assert files_of(store.root) == set()


def test_blobs_that_somebody_holds_stay(store):
    held = put(store, f"blobs/sha256-{HEX}", 100 * HOUR_S)
    with BlobHolds() as holds:
        assert holds.hold(held)
        clear_up(store, prunes=True)
        assert held.exists()
    clear_up(store, prunes=True)
    assert not held.exists()


def test_blobs_that_old_versions_wrote_are_renamed(store, add_model):
    add_model(store, "m", model=b"weights")
    for path in list(store.blobs.iterdir()):
        path.rename(path.with_name(path.name.replace("-", ":")))
    assert store.list() == []
    clear_up(store, prunes=False)
    assert store.find(ModelName.parse("m")).model_path.read_bytes() == b"weights"
