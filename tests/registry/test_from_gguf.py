"""A GGUF file in the store becomes a model, and what goes wrong leaves no trace."""

from __future__ import annotations

import json
import os

import gguf
import pytest

from puna.gguf import TensorInfo
from puna.gguf.file_type import parameter_size, quantization_name
from puna.registry import InvalidDigest, MissingBlob, ModelName, Origin, StoreError
from puna.registry.creation.description import WeightsDescription
from puna.registry.creation.from_gguf import create_from_gguf
from puna.registry.store.origin import origin_path
from tests.descriptions import TINY_WEIGHTS

pytestmark = pytest.mark.native

NAME = ModelName.parse("m")
OTHER = ModelName.parse("other")


def tensors(*shapes_and_types):
    return {str(i): TensorInfo(str(i), kind, shape, 0, 0) for i, (shape, kind) in enumerate(shapes_and_types)}


def test_creates_a_model_with_the_config_that_ollama_shows(store):
    digest = store.add_blob([b"weights"])
    model = create_from_gguf(store, NAME, digest, TINY_WEIGHTS)
    assert model.model_path == store.blob_path(digest)
    assert model == store.find(NAME)
    config = json.loads(store.blob_path(model.manifest.config.digest).read_bytes())
    assert config == {
        "model_format": "gguf",
        "model_family": "llama",
        "model_families": ["llama"],
        "model_type": "2K",
        "file_type": "F32",
        "architecture": "amd64",
        "os": "linux",
    }


def test_what_a_file_says_is_cut_to_what_the_store_reads_again(store):
    long = WeightsDescription(architecture="a" * 70_000, parameter_size="1" * 300, quantization="\n" * 300)
    model = create_from_gguf(store, NAME, store.add_blob([b"weights"]), long)
    assert len(model.config.family) == 256
    assert store.list()[0].config == model.config


def test_where_weights_came_from_is_kept_with_them(store, files_of):
    digest = store.add_blob([b"weights"])
    assert create_from_gguf(store, NAME, digest, TINY_WEIGHTS).origin is None
    origin = Origin(source="pypi:x", version="1.0", url="https://h/x.whl", package_digest="sha256:0")
    create_from_gguf(store, NAME, digest, TINY_WEIGHTS, origin)
    store.write_manifest(OTHER, store.find(NAME).manifest)
    create_from_gguf(store, NAME, digest, TINY_WEIGHTS)
    store.delete(NAME)
    assert store.find(OTHER).origin == origin
    store.delete(OTHER)
    assert files_of(store.root) == set()


@pytest.mark.parametrize("record", [b"{", b'{"source": 1}', b'{"source": "' + b"x" * 20_000 + b'"}'])
def test_a_record_of_origin_that_cannot_be_used_is_none(store, record):
    digest = store.add_blob([b"weights"])
    create_from_gguf(store, NAME, digest, TINY_WEIGHTS, Origin(source="pypi:x"))
    origin_path(store.root, digest).write_bytes(record)
    assert store.find(NAME).origin is None


def test_replacing_a_model_removes_what_only_the_old_one_used(store, tiny_gguf, add_model):
    old = add_model(store, "m", model=b"old", template=b"shared")
    add_model(store, "other", model=b"other", template=b"shared")
    create_from_gguf(store, NAME, store.add_blob([tiny_gguf]), TINY_WEIGHTS)
    assert not store.has_blob(old.layers[0].digest)
    assert store.has_blob(old.layers[1].digest)
    assert store.find(NAME).template is None


def test_creating_the_same_model_twice_changes_nothing(store, tiny_gguf, files_of):
    digest = store.add_blob([tiny_gguf])
    first = create_from_gguf(store, NAME, digest, TINY_WEIGHTS)
    before = files_of(store.root)
    assert create_from_gguf(store, NAME, digest, TINY_WEIGHTS).digest == first.digest
    assert files_of(store.root) == before


def test_the_blob_must_be_in_the_store(store):
    with pytest.raises(MissingBlob, match="sha256:" + "0" * 64):
        create_from_gguf(store, NAME, "sha256:" + "0" * 64, TINY_WEIGHTS)
    with pytest.raises(InvalidDigest):
        create_from_gguf(store, NAME, "/etc/passwd", TINY_WEIGHTS)


def test_disk_full_while_creating(store, tiny_gguf, full_disk, monkeypatch, files_of):
    digest = store.add_blob([tiny_gguf])
    before = files_of(store.root)
    monkeypatch.setattr("puna.registry.store.store.write_atomically", full_disk)
    with pytest.raises(OSError, match="No space left on device"):
        create_from_gguf(store, NAME, digest, TINY_WEIGHTS)
    assert files_of(store.root) == before
    monkeypatch.undo()
    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(StoreError, match="No space left on device"):
        create_from_gguf(store, NAME, digest, TINY_WEIGHTS)
    assert files_of(store.root) == before


@pytest.mark.parametrize(
    ("count", "text"),
    [
        *((0, "0"), (999, "999"), (1000, "1K"), (1_500_000, "1.50M"), (2_000_000, "2M")),
        *(
            (134_515_008, "134.52M"),
            (7_615_616_512, "7.6B"),
            (70_000_000_000, "70B"),
            (7_020_000_000, "7.0B"),
        ),
    ],
)
def test_parameter_counts_as_ollama_prints_them(count, text):
    assert parameter_size(tensors(((count,), "F32"))) == text


def test_quantization_names_are_those_of_llama_cpp():
    for file_type in gguf.LlamaFileType:
        expected = file_type.name.removeprefix("MOSTLY_").removeprefix("ALL_")
        if expected not in ("GUESSED", "NVFP4", "Q1_0", "Q2_0"):
            assert quantization_name({"general.file_type": file_type.value}, {}) == expected


def test_without_a_file_type_most_weights_decide():
    weights = tensors(((10,), "F32"), ((10, 10), "Q4_K"), ((10, 11), "Q6_K"))
    assert quantization_name({}, weights) == "Q6_K"
    assert quantization_name({"general.file_type": 12345}, weights) == "Q6_K"
    assert quantization_name({}, {}) == "unknown"
