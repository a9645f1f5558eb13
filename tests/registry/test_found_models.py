"""A model that was found is found again without reading, and never as what it was before."""

from __future__ import annotations

import shutil

import pytest

from puna.registry import ModelName, Store
from puna.registry.store import found_models
from puna.registry.store.origin import Origin

# Fixtures that are wanted for what they do.
# ruff: noqa: ARG001

pytestmark = pytest.mark.unit

NAME = ModelName.parse("tiny")


@pytest.fixture
def settled(monkeypatch):
    """Every file counts as one that has long been what it is."""
    monkeypatch.setattr(found_models, "_SETTLED_NS", 0)


@pytest.fixture
def found(store, add_model, settled):
    add_model(store, "tiny", model=b"GGUF", template=b"{{ .Prompt }}")
    assert store.find_again(NAME) is None
    return store.find(NAME)


def test_is_the_same(store, found):
    assert store.find_again(NAME) is found
    assert store.find_again(ModelName.parse("other")) is None


def test_other_spelling_is_left_to_find(store, found):
    upper = ModelName.parse("TINY")
    assert store.find(upper).name.short == "tiny:latest"
    assert store.find_again(upper) is None


def test_changed_manifest(store, found, add_model):
    add_model(store, "tiny", model=b"GGUF, another one")
    assert store.find_again(NAME) is None
    assert store.find(NAME).digest != found.digest
    assert store.find_again(NAME).digest != found.digest


def test_origin_that_is_recorded_later(store, found):
    weights = next(layer.digest for layer in found.manifest.layers if layer.kind == "model")
    store.write_origin(weights, Origin("registry:example.com/a/b:c"))
    assert store.find_again(NAME) is None
    assert store.find(NAME).origin == Origin("registry:example.com/a/b:c")


@pytest.mark.parametrize("kind", ["model", "template"])
def test_blob_that_is_gone(store, found, kind):
    digest = next(layer.digest for layer in found.manifest.layers if layer.kind == kind)
    store.blob_path(digest).unlink()
    assert store.find_again(NAME) is None


def test_deleted(store, found):
    store.delete(NAME)
    assert store.find_again(NAME) is None


def test_what_has_just_changed_is_read_again(store, add_model):
    add_model(store, "tiny")
    store.find(NAME)
    assert store.find_again(NAME) is None


def test_other_roots_models_may_be_hidden_any_time(store, found, tmp_path):
    shutil.copytree(store.root, tmp_path / "other")
    both = Store(tmp_path / "writable", [tmp_path / "other"])
    assert both.find(NAME).digest == found.digest
    assert both.find_again(NAME) is None


@pytest.mark.usefixtures("settled")
def test_few_are_kept_and_only_small_ones(store, add_model, monkeypatch):
    monkeypatch.setattr(found_models, "_MAX_MODELS", 2)
    names = [ModelName.parse(each) for each in ("first", "second", "third")]
    for each in names:
        add_model(store, each.model)
    for each in names:
        store.find(each)
    assert [store.find_again(each) is not None for each in names] == [False, True, True]
    add_model(store, "wordy", license=bytes(found_models._MAX_TEXT_BYTES + 1))
    store.find(ModelName.parse("wordy"))
    assert store.find_again(ModelName.parse("wordy")) is None
