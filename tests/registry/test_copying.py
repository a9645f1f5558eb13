"""A copy is the same manifest, also of a model in a store that is only read."""

from __future__ import annotations

import threading

import pytest

from puna.registry import DigestMismatch, ModelName, ModelNotFound, Store
from puna.registry.creation.copying import copy_model

pytestmark = pytest.mark.unit

SOURCE, TARGET = ModelName.parse("source"), ModelName.parse("target")


@pytest.fixture
def both(store, tmp_path, add_model) -> Store:
    """The store, with a model "target", beside another that is only read, with a model "source"."""
    other = Store(tmp_path / "other")
    add_model(other, "source", system=b"S", model=b"weights" * 1000)
    add_model(store, "target", system=b"old")
    return Store(store.root, [other.root])


def test_a_model_in_a_store_that_is_only_read(both, store):
    old = store.find(TARGET)
    copy_model(both, SOURCE, TARGET, threading.Event())
    assert store.find(TARGET).digest == both.find(SOURCE).digest
    assert (store.find(TARGET).system, store.find(TARGET).model_path.read_bytes()) == ("S", b"weights" * 1000)
    assert not any(store.has_blob(layer.digest) for layer in old.manifest.layers)


def test_what_fails_leaves_nothing(both, store, files_of):
    before = files_of(store.root)
    with pytest.raises(ModelNotFound):
        copy_model(both, ModelName.parse("nobody"), TARGET, threading.Event())
    both.find(SOURCE).model_path.write_bytes(b"damaged")
    with pytest.raises(DigestMismatch):
        copy_model(both, SOURCE, TARGET, threading.Event())
    assert files_of(store.root) == before
